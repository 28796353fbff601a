/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots that fabrics share: defaults for what one need not do, and the put of
 * every fabric whose peers are reached by loads and stores.
 */
#include <string.h>

#include "futex.h"
#include "segment.h"

enum ferry_status ferry_fabric_kick_nothing(struct ferry_mem *mem)
{
	(void)mem;
	return FERRY_OK;
}

bool ferry_fabric_flushed_always(struct ferry_mem *mem)
{
	(void)mem;
	return true;
}

bool ferry_fabric_progress_none(struct ferry_mem *mem)
{
	(void)mem;
	return false;
}

void ferry_fabric_seal_nothing(struct ferry_mem *mem)
{
	(void)mem;
}

bool ferry_fabric_cut_never(struct ferry_mem *mem, int32_t peer,
                            char why[FERRY_REASON_BYTES])
{
	(void)mem;
	(void)peer;
	(void)why;
	return false;
}

size_t ferry_fabric_max_put_unbounded(const struct ferry_mem *mem)
{
	(void)mem;
	return SIZE_MAX;
}

uint32_t ferry_fabric_caps_ldst(const struct ferry_mem *mem, int32_t peer)
{
	(void)mem;
	(void)peer;
	return FERRY_CAP_LDST | FERRY_CAP_ORDERED | FERRY_CAP_SAME_HOST;
}

void *ferry_fabric_data_behind(const struct ferry_mem *mem, int32_t peer)
{
	unsigned char *control = mem->ops->control(mem, peer);

	return control ? control + mem->control_bytes : NULL;
}

enum ferry_status ferry_fabric_put_ldst(struct ferry_mem *mem, int32_t peer,
                                        size_t offset, const void *source,
                                        size_t bytes, uint32_t signal)
{
	unsigned char *base = mem->ops->control(mem, peer);

	ferry_mem_store(base, offset, source, bytes);
	ferry_mem_raise(base, mem->counters_offset, signal);
	return FERRY_OK;
}

void ferry_segment_wake(struct ferry_segment_ctl *ctl)
{
	if (!swap_seq_u32(&ctl->asleep, 0))
		return;
	add_seq_u32(&ctl->doorbell, 1);
	futex_wake_all(&ctl->doorbell, ctl->shared);
}
