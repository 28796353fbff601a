/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_info.h and cuda_link.h in a build without CUDA. */
#include "cuda_info.h"
#include "cuda_link.h"

#include <stdio.h>
#include <string.h>

int32_t ferry_cuda_count(char reason[FERRY_CUDA_REASON_BYTES])
{
	snprintf(reason, FERRY_CUDA_REASON_BYTES, "built without CUDA");
	return 0;
}

bool ferry_cuda_device_get(int32_t i, struct ferry_cuda_device *device)
{
	(void)i;
	memset(device, 0, sizeof(*device));
	return false;
}

bool ferry_cuda_peer(int32_t from, int32_t to)
{
	(void)from;
	(void)to;
	return false;
}

void ferry_cuda_link_get(int32_t from, int32_t to, struct ferry_cuda_link *link)
{
	(void)from;
	(void)to;
	memset(link, 0, sizeof(*link));
}

enum ferry_status ferry_cuda_link_measure(int32_t from, int32_t to,
                                          struct ferry_cuda_link *link)
{
	(void)from;
	(void)to;
	(void)link;
	return ferry_fail(NULL, FERRY_UNSUPPORTED, "built without CUDA");
}
