/* SPDX-License-Identifier: Apache-2.0 */
/* What this MPI is, and how fast it moves large messages. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "mpi_rank.h"

/* "Open MPI v4.1.4, package: ..." up to the first comma. */
void mpi_version(char text[64])
{
	char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int n;

	MPI_Get_library_version(whole, &n);
	whole[strcspn(whole, ",\n")] = '\0';
	snprintf(text, 64, "%.63s", whole);
}

/* The name that an enumeration has for a value. */
static bool name_value(MPI_T_enum names, int value, char text[32])
{
	char ignored[32];
	int n = 0, bytes = (int)sizeof(ignored);

	if (names == MPI_T_ENUM_NULL ||
	    MPI_T_enum_get_info(names, &n, ignored, &bytes))
		return false;
	for (int i = 0; i < n; i++) {
		int item;

		bytes = 32;
		if (!MPI_T_enum_get_item(names, i, &item, text, &bytes) &&
		    item == value)
			return true;
	}
	return false;
}

/* An enumerated control variable, by the name of its value. */
static bool read_choice(const char *variable, char text[32])
{
	MPI_T_cvar_handle handle;
	MPI_T_enum names;
	MPI_Datatype type;
	int index, verbosity, bind, scope, count, value;
	int name_bytes = 0, help_bytes = 0;

	if (MPI_T_cvar_get_index(variable, &index) ||
	    MPI_T_cvar_get_info(index, NULL, &name_bytes, &verbosity, &type,
	                        &names, NULL, &help_bytes, &bind, &scope) ||
	    MPI_T_cvar_handle_alloc(index, NULL, &handle, &count))
		return false;
	const bool good = !MPI_T_cvar_read(handle, &value) &&
	                  name_value(names, value, text);

	MPI_T_cvar_handle_free(&handle);
	return good;
}

/* Open MPI sets the variable to what it could use. */
void mpi_single_copy(char text[32])
{
	int provided;

	snprintf(text, 32, "unknown");
	if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided))
		return;
	if (!read_choice("btl_vader_single_copy_mechanism", text) &&
	    !read_choice("btl_sm_single_copy_mechanism", text))
		snprintf(text, 32, "unknown");
	MPI_T_finalize();
}

double mpi_exchange_rate(void)
{
	enum { PASSES = 6, ALL_BYTES = 128 << 20, LEAST = 4 << 20 };
	int rank, n_ranks;
	double best = 0;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	const int each = ALL_BYTES / n_ranks;
	const int bytes = each > LEAST ? each : LEAST;
	uint8_t *memory = alloc_or_exit(2, (size_t)bytes);

	memset(memory, rank + 1, 2 * (size_t)bytes);
	for (int pass = 0; n_ranks > 1 && pass < PASSES; pass++) {
		MPI_Barrier(MPI_COMM_WORLD);
		const double start = MPI_Wtime();

		MPI_Sendrecv(memory, bytes, MPI_BYTE, (rank + 1) % n_ranks, 0,
		             memory + bytes, bytes, MPI_BYTE,
		             (rank + n_ranks - 1) % n_ranks, 0, MPI_COMM_WORLD,
		             MPI_STATUS_IGNORE);
		double took = MPI_Wtime() - start;

		MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX,
		              MPI_COMM_WORLD);
		const double rate = 2.0 * n_ranks * bytes / took;

		best = rate > best ? rate : best;
	}
	free(memory);
	return best;
}
