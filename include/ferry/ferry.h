/* SPDX-License-Identifier: Apache-2.0 */
/* ferry/ferry.h: all public headers. */
#ifndef FERRY_FERRY_H
#define FERRY_FERRY_H

#include <ferry/balance.h>
#include <ferry/balancer.h>
#include <ferry/base.h>
#include <ferry/eplb.h>
#include <ferry/experts.h>
#include <ferry/fabric.h>
#include <ferry/moe.h>
#include <ferry/moe_config.h>
#include <ferry/placement.h>
#include <ferry/plan.h>
#include <ferry/predict.h>
#include <ferry/split.h>
#include <ferry/status.h>
#include <ferry/trace.h>

#endif
