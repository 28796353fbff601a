/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of the calls: each check takes the caller's struct of any age
 * into this library's form of it, with defaults and strides filled in, or
 * refuses: call, argument, value, what is allowed.
 */
#ifndef FERRY_MOE_CHECK_H
#define FERRY_MOE_CHECK_H

#include "../proto/channel.h"

enum ferry_status ferry_check_slot(const struct ferry_moe *moe,
                                   const char *call, int32_t slot,
                                   const struct CUstream_st *stream);

enum ferry_status ferry_check_dispatch_in(const struct ferry_moe *moe,
                                          const char *call,
                                          const struct ferry_dispatch_in *in,
                                          struct ferry_dispatch_in *own);

/* Copies only: what a broken channel zeroes is in it. */
enum ferry_status ferry_take_dispatch_out(const char *call,
                                          const struct ferry_dispatch_out *out,
                                          struct ferry_dispatch_out *own);
/* hidden: of the operation. */
enum ferry_status ferry_check_dispatch_out(const struct ferry_moe *moe,
                                           const char *call, int32_t hidden,
                                           struct ferry_dispatch_out *own);

enum ferry_status ferry_check_combine_in(const struct ferry_moe *moe,
                                         const char *call, int32_t hidden,
                                         const struct ferry_combine_in *in,
                                         struct ferry_combine_in *own);

enum ferry_status ferry_check_combine_out(const struct ferry_moe *moe,
                                          const char *call,
                                          const struct ferry_slot *slot,
                                          const struct ferry_combine_out *out,
                                          struct ferry_combine_out *own);

#endif
