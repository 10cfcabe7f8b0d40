// What a worker says of sessions on several devices when it joins: that it serves them, and how
// fast their executors exchange data.
#pragma once

#include "proto/fleet.pb.h"

namespace outboard::worker {

// Says that this worker starts an executor for each device of a session and that they exchange what
// a graph of the device level says; of a worker of several devices, also how fast. Measures once in
// a process.
void DescribeGroups(int devices, proto::Register& entry);

}  // namespace outboard::worker
