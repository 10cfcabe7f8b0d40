// Lets a transformer of random weights write, and prints what a token costs as the text grows.
//
//   CLOUD=1 CLOUD_HOST=host:6667 CLOUD_KEY=... gpt_decode --tokens 500
//
// Exit codes: 0 done; 1 an error; 2 no gateway can be reached.
#include <chrono>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "cli/arguments.h"
#include "client/examples/gpt_decoder.h"
#include "client/session/current_session.h"

namespace outboard::examples {
namespace {

void Write(const GptOptions& options, int64_t tokens, int64_t print_every) {
  using Clock = std::chrono::steady_clock;
  const Gpt net(options);
  GptDecoder decoder(net, options);
  std::vector<int64_t> last = {1};
  while (decoder.position() < tokens) {
    const int64_t count = std::min(print_every, tokens - decoder.position());
    const Clock::time_point begin = Clock::now();
    const std::vector<int64_t> written = decoder.Write(last, count);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    absl::PrintF("%5d tokens  %7.3f ms each:", decoder.position(), ms / static_cast<double>(count));
    for (const int64_t token : written) absl::PrintF(" %d", token);
    absl::PrintF("\n");
    last = {written.back()};
  }
}

}  // namespace
}  // namespace outboard::examples

int main(int argc, char** argv) {
  outboard::examples::GptOptions options{.layers = 4, .context = 1024};
  int64_t tokens = 64, print_every = 16;
  uint64_t seed = 1;
  outboard::cli::Arguments app("gpt_decode", "Lets a transformer of random weights write");
  app.Add("--tokens", &tokens, "Tokens to write").Positive();
  app.Add("--print-every", &print_every, "Tokens between two lines").Positive();
  app.Add("--layers", &options.layers, "Transformer blocks").Positive();
  app.Add("--width", &options.width, "Numbers for each token").Positive();
  app.Add("--heads", &options.heads, "Divides the width").Positive();
  app.Add("--context", &options.context, "Most tokens").Positive();
  app.Add("--seed", &seed, "Seed of the weights");
  if (const std::optional<int> exit_code = app.Parse(argc, argv)) return *exit_code;
  const auto session = outboard::CurrentSession();
  if (!session.ok()) {
    std::fprintf(stderr, "gpt_decode: %s\n", session.status().ToString().c_str());
    return 2;
  }
  try {
    outboard::Tensor::manual_seed(seed);
    outboard::examples::Write(options, tokens, print_every);
  } catch (const outboard::Error& error) {
    std::fprintf(stderr, "gpt_decode: %s\n", error.what());
    return 1;
  }
  return outboard::CloseSession().ok() ? 0 : 1;
}
