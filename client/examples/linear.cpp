// The first program: fits a small network to a curve, in the cloud. REF=1 runs it on the reference
// interpreter.
//
// Exit codes: 0 done; 1 it did not learn, or an error; 2 wrong usage, or no gateway can be reached.
#include <cstdio>
#include <optional>

#include "cli/arguments.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/session/current_session.h"
#include "client/tensor/tensor.h"

namespace {

using outboard::Tensor;

int Train() {
  Tensor::manual_seed(1);
  const outboard::nn::Linear hidden(1, 16), out(16, 1);
  outboard::nn::StateDict state;
  hidden.Collect(state, "hidden");
  out.Collect(state, "out");
  outboard::optim::Adam adam(outboard::nn::parameters(state), 0.02);

  const Tensor x = Tensor::uniform({64, 1}, -1, 1).realize();
  const Tensor y = ((x * 3).sin() * 0.5 + x).realize();
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = out(hidden(x).tanh()).mse_loss(y);
    loss.backward();
    adam.step({loss});
    last = loss.item();
    if (step == 0) first = last;
    if (step % 50 == 0) std::printf("step %3d  loss %.5f\n", step, last);
  }
  std::printf("step 200  loss %.5f\n", last);
  return last < first / 20 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  outboard::cli::Arguments arguments(
      "linear", "Fits a small network to a curve: CLOUD=1 in the cloud, else on this machine.");
  if (const std::optional<int> exit_code = arguments.Parse(argc, argv)) return *exit_code;
  const auto session = outboard::CurrentSession();
  if (!session.ok()) {
    std::fprintf(stderr, "linear: %s\n", session.status().ToString().c_str());
    return 2;
  }
  int code = 1;
  try {
    code = Train();
  } catch (const outboard::Error& error) {
    std::fprintf(stderr, "linear: %s\n", error.what());
  }
  const auto stats = outboard::CloseSession();
  if (stats.ok())
    std::printf("%llu runs, %llu round trips, %llu s billed\n",
                static_cast<unsigned long long>(stats->runs),
                static_cast<unsigned long long>(stats->blocking_round_trips),
                static_cast<unsigned long long>(stats->seconds_billed));
  return code;
}
