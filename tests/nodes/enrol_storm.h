// A shelf of machines that is switched on at once, in virtual time: they ask the real enrolment
// (gateway/nodes) for certificates, join the real core of the gateway, and a session waits for
// each. The network, firmware and executors are simulated; images are not transferred.
//
// Threads: one, and one of WorkerAdmission's. Reads and writes files in `folder`.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::test {

struct EnrolStorm {
  std::string folder;  // exists, and is empty
  int machines = 1000;
  // Others that say a serial number of those, and are expected or show its claim too.
  int impostors = 20;
  bool behind_one_address = true;  // as the gateway sees them; else each has its own
  uint32_t seed = 1;
};

struct EnrolStormResult {
  double virtual_s = 0;  // from power on until the last of the sessions is served
  double real_s = 0;     // that it took to simulate
  int serving = 0;       // sessions, each on a machine of its own
  int64_t asks = 0;      // for a certificate
  int64_t too_often = 0;  // of these, by asks_too_often
  int twice = 0;         // machines with two sessions, and serial numbers with two machines
};

// Errors: DEADLINE_EXCEEDED  not all serve within an hour of virtual time: how many do
//         INTERNAL           an invariant of the core's does not hold
//         those of NodeRegistry::Open and WorkerAdmission::Start
absl::StatusOr<EnrolStormResult> RunEnrolStorm(const EnrolStorm& storm);

}  // namespace outboard::test
