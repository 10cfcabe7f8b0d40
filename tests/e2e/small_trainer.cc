// A user's program that trains for a moment, for tests that stop it: `small_trainer STEPS`. Prints
// a line a step, and in the end the SHA-256 of the weights and how many kernels ran. With
// CLOUD_DEVICES its batch is cut.
#include <cstdio>
#include <cstdlib>

#include "client/session/current_session.h"
#include "tests/e2e/small_training.h"
#include "wire/merkle.h"

int main(int argc, char** argv) {
  using namespace outboard;
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1;
  try {
    {
      test::SmallTraining training(/*cuts_batch=*/std::getenv("CLOUD_DEVICES") != nullptr);
      for (int step = 0; step < steps; ++step) {
        std::printf("step %d: %.9g\n", step, training.Step().item());
        std::fflush(stdout);
      }
      const wire::Hash hash = Sha256(training.Weights());
      std::printf("weights %s\n", wire::ToHex(hash).c_str());
    }
    const auto stats = CloseSession();
    if (!stats.ok()) {
      std::fprintf(stderr, "small_trainer: %s\n", stats.status().ToString().c_str());
      return 1;
    }
    std::printf("%llu runs, %llu kernels\n", static_cast<unsigned long long>(stats->runs),
                static_cast<unsigned long long>(stats->kernels_launched));
  } catch (const Error& error) {
    std::fprintf(stderr, "small_trainer: %s\n", error.what());
    return 1;
  }
  return 0;
}
