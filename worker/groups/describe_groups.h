// What a worker says of sessions on several devices when it joins: that it serves them, and how
// fast their executors exchange data.
#pragma once

#include "proto/fleet.pb.h"
#include "worker/groups/group_links.h"

namespace outboard::worker {

// Says that this worker starts an executor for each device of a session and that they exchange what
// a graph of the device level says; of a worker of several devices, also how fast. Measures once in
// a process. `links`: to executors of other workers; nullptr: it has none.
void DescribeGroups(int devices, const GroupLinks* links, proto::Register& entry);

}  // namespace outboard::worker
