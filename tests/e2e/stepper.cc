// A program of a user's, for tests that end it or what it talks to: steps until something fails,
// or for `stepper N`, N times. Prints a line when it has a session and one a step.
// Exit codes as everywhere: 0 done, 1 failed, 2 nobody could be reached.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/support/step.h"

int main(int argc, char** argv) {
  const long steps = argc > 1 ? std::atol(argv[1]) : 1'000'000'000;
  const auto fail = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "stepper: %s\n", status.ToString().c_str());
    return code;
  };
  auto options = outboard::session::SessionOptions::FromEnvironment();
  if (!options.ok()) return fail(options.status(), 2);
  if (const char* ms = std::getenv("STEPPER_RECONNECT_MS"))
    options->reconnect_timeout = std::chrono::milliseconds(std::atol(ms));
  auto session = outboard::Session::Connect(*options);
  if (!session.ok()) return fail(session.status(), 2);
  std::puts("open");
  for (long step = 1; step <= steps; ++step) {
    if (absl::Status status = outboard::test::Step(**session); !status.ok()) return fail(status, 1);
    std::printf("step %ld\n", step);
    std::fflush(stdout);
    if (steps > 100) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (absl::Status status = (*session)->Close(); !status.ok()) return fail(status, 1);
  std::printf("%.3f s billed\n", (*session)->stats().seconds_billed);
  return 0;
}
