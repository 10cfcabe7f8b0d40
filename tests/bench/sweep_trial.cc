// A trial of sweep_figures.cc: so many steps in a session, each of which is reported. Prints when
// the first was done, on the monotonic clock.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "client/report/report.h"
#include "client/session/current_session.h"
#include "client/tensor/tensor.h"

int main(int argc, char** argv) {
  using namespace outboard;  // NOLINT
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1;
  try {
    Tensor x = Tensor::randn({256, 256}).realize();
    const Tensor w = (Tensor::randn({256, 256}) * 0.05).realize();
    for (int step = 1; step <= steps; ++step) {
      x.assign(x.matmul(w).tanh());
      const double loss = x.mean().item();
      if (step == 1) {
        std::printf("running_ms=%lld\n",
                    static_cast<long long>(
                        std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count()));
        std::fflush(stdout);
      }
      Report(step, {{"loss", loss}});
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "sweep_trial: %s\n", error.what());
    return 1;
  }
  return CloseSession().ok() ? 0 : 1;
}
