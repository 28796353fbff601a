/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of the form "mpi-dedup": dispatch and combine. */
#ifndef FERRY_MPI_DEDUP_H
#define FERRY_MPI_DEDUP_H

#include "mpi_rank.h"

/* Ids and weights of all tokens of rank q, since dispatch. */
const int32_t *dedup_ids(const struct mpi_rank *rank, int32_t q);
const float *dedup_weights(const struct mpi_rank *rank, int32_t q);

/* send.n: how many of the own tokens each other rank serves. */
void dedup_count_sends(struct mpi_rank *rank);

void dedup_combine(struct mpi_rank *rank);

#endif
