// The join test (join_test.h) of a node's CPU devices, begun when its worker starts: beside its
// enrolment, which waits for the network and the gateway. The gateway's question (Measure) then
// finds it done, or under way.
//
// Threads: one of its own, which may be left behind when the process ends; Take: any, one at a
// time.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"

namespace outboard::worker {

class EarlyJoinTest {
 public:
  using Results = std::vector<absl::StatusOr<proto::DeviceRates>>;  // of each device

  // `command`: the measuring process; `cores`: of each device.
  EarlyJoinTest(std::vector<std::string> command, std::vector<std::vector<int>> cores);

  // What MeasureDevice has found with kTestAlone, once, or why it has not; waits for
  // it. Nothing from then on. Errors of each: those of MeasureDevice (device_rates.h), among them
  // DEADLINE_EXCEEDED.
  Results Take();
  bool is_there() const { return results_.valid(); }

 private:
  std::future<Results> results_;
};

}  // namespace outboard::worker
