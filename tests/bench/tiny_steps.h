// Steps that compute next to nothing: what is left is what a step costs besides.
#pragma once

#include <memory>
#include <vector>

#include "client/session/session.h"
#include "tests/bench/cloud.h"

namespace outboard::bench {

inline constexpr int kTinySteps = 3000;

// A chain of steps of x + 1 on four numbers.
class TinySteps {
 public:
  explicit TinySteps(Session& session);
  // Returns the step's number, whose value can be awaited where it is fetched.
  uint64_t Run(bool fetch);

 private:
  Session& session_;
  session::RunRequest request_;
};

// Microseconds of each of `steps` of them with its value read, without the first tenth.
std::vector<double> MeasureTinySteps(Session& session, int steps = kTinySteps);

std::unique_ptr<Session> ConnectTo(const Cloud& cloud);

}  // namespace outboard::bench
