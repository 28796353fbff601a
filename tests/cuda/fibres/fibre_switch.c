/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of fibres, which are kept for later ones, and the change between them
 * by hand: swapcontext asks the kernel each time, and a test changes stacks
 * some ten million times.
 */
#include "fibre_switch.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBRE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBRE_ASAN 1
#endif
#endif
#ifdef FIBRE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/*
 * Tops of stacks are so far apart that one cache has many of them: any two
 * would share a set of the first level otherwise.
 */
enum { STACK_BYTES = 64 << 10, TOP_STEP = 5 * 64, TOP_BYTES = 4096 };
/* The last word of a stack that no frame may reach. */
static const uint64_t STACK_END = 0x5a17ed5a17ed5a17u;

/* Keeps what a call keeps, and the stack pointer at *from; goes on at `to`. */
void fibre_switch(void **from, void *to);
__asm__(".text\n"
        ".globl fibre_switch\n"
        ".hidden fibre_switch\n"
        ".type fibre_switch, @function\n"
        "fibre_switch:\n"
        "	pushq %rbx\n"
        "	pushq %rbp\n"
        "	pushq %r12\n"
        "	pushq %r13\n"
        "	pushq %r14\n"
        "	pushq %r15\n"
        "	movq %rsp, (%rdi)\n"
        "	movq %rsi, %rsp\n"
        "	popq %r15\n"
        "	popq %r14\n"
        "	popq %r13\n"
        "	popq %r12\n"
        "	popq %rbp\n"
        "	popq %rbx\n"
        "	ret\n"
        ".size fibre_switch, . - fibre_switch\n");

static void *free_stacks; /* the first word of each: the next */
static struct fibre *current;
static void *scheduler_sp;
#ifdef FIBRE_ASAN
static const void *scheduler_stack;
static size_t scheduler_bytes;
#endif

static void back_to_scheduler(struct fibre *f)
{
#ifdef FIBRE_ASAN
	__sanitizer_start_switch_fiber(f->over ? NULL : &f->shadow,
	                               scheduler_stack, scheduler_bytes);
#endif
	fibre_switch(&f->sp, scheduler_sp);
#ifdef FIBRE_ASAN
	__sanitizer_finish_switch_fiber(f->shadow, &scheduler_stack,
	                                &scheduler_bytes);
#endif
}

static void first_entry(void)
{
#ifdef FIBRE_ASAN
	__sanitizer_finish_switch_fiber(NULL, &scheduler_stack,
	                                &scheduler_bytes);
#endif
	current->body();
	current->over = true;
	back_to_scheduler(current);
	abort();
}

static void **top_of(void *stack)
{
	const uintptr_t n = (uintptr_t)stack / STACK_BYTES;

	return (void **)((char *)stack + STACK_BYTES - 64 -
	                 n * TOP_STEP % TOP_BYTES);
}

bool fibre_open(struct fibre *f, void (*body)(void))
{
	void *stack = free_stacks;

	if (stack) {
		free_stacks = *(void **)stack;
	} else {
		stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
		             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		             0);
		if (stack == MAP_FAILED)
			return false;
	}
	*(uint64_t *)stack = STACK_END;
	void **sp = top_of(stack);

	*--sp = NULL; /* first_entry returns to nobody */
	*--sp = (void *)(uintptr_t)first_entry;
	sp -= 6; /* the registers that fibre_switch takes off */
	*f = (struct fibre){.stack = stack, .sp = sp, .body = body};
	return true;
}

void fibre_close(struct fibre *f)
{
#ifdef FIBRE_ASAN
	/* The frames of first_entry and above were never left. */
	__asan_unpoison_memory_region(
		f->sp,
		(size_t)((char *)f->stack + STACK_BYTES - (char *)f->sp));
#endif
	if (*(uint64_t *)f->stack != STACK_END) {
		printf("fibres: a stack was too small\n");
		abort();
	}
	*(void **)f->stack = free_stacks;
	free_stacks = f->stack;
}

void fibre_enter(struct fibre *f)
{
	current = f;
#ifdef FIBRE_ASAN
	void *shadow;

	__sanitizer_start_switch_fiber(&shadow, f->stack, STACK_BYTES);
#endif
	fibre_switch(&scheduler_sp, f->sp);
#ifdef FIBRE_ASAN
	__sanitizer_finish_switch_fiber(shadow, NULL, NULL);
#endif
}

void fibre_leave(struct fibre *f)
{
	back_to_scheduler(f);
}
