// What a target's kernels can do, as questions that a schedule asks of them: the same for all who
// schedule, so that what is estimated or measured is what a worker runs.
#pragma once

#include "compiler/schedule/schedule.h"
#include "compiler/target.h"

namespace outboard {

// Its policies are the defaults, which a worker's user may change.
schedule::ScheduleOptions ScheduleOptionsFor(const Target& target);

}  // namespace outboard
