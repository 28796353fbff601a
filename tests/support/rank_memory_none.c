/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of GPUs in a build without CUDA: none. */
#include "rank_memory.h"

const struct rank_memory_ops *rank_memory_cuda(void)
{
	return NULL;
}
