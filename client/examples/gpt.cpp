// Trains a small transformer on a text in the cloud, character by character, and lets it write.
//
//   CLOUD=1 CLOUD_HOST=host:6667 CLOUD_KEY=... gpt --text book.txt --steps 500
//
// Exit codes: 0 done; 1 the text cannot be used, or an error; 2 no gateway can be reached.
#include "client/examples/gpt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_format.h"
#include "cli/arguments.h"
#include "client/session/current_session.h"

namespace outboard::examples {
namespace {

struct Flags {
  std::string text;
  int64_t steps = 500;
  int64_t batch = 4;
  int64_t print_every = 20;
  int64_t write = 200;  // characters, at the end
  double lr = 5e-4;
  std::optional<uint64_t> seed;
  bool json = false;
  bool bf16 = false;
  int64_t vocabulary = 0;  // 0: as many as the text has
  GptOptions net;
};

using Clock = std::chrono::steady_clock;
const Clock::time_point kProcessStart = Clock::now();  // nearly: of static initialisation
double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The bytes of a text, numbered in the order of their codes.
struct Characters {
  explicit Characters(const std::string& text) {
    std::vector<bool> used(256);
    for (const char c : text) used[static_cast<uint8_t>(c)] = true;
    std::vector<uint8_t> number_of(256);
    for (int c = 0; c < 256; ++c)
      if (used[c]) {
        number_of[c] = static_cast<uint8_t>(letters.size());
        letters.push_back(static_cast<char>(c));
      }
    for (const char c : text) numbers.push_back(number_of[static_cast<uint8_t>(c)]);
  }

  std::string letters;           // by number
  std::vector<uint8_t> numbers;  // of the text
};

// Characters drawn one after the other, each by what the net expects after the last ones.
std::string Write(const Gpt& net, const Flags& flags, const std::string& letters) {
  const TrainingMode testing(false);
  const int64_t context = flags.net.context;
  std::vector<uint8_t> window(context, 0);
  std::string out;
  for (int64_t i = 0; i < flags.write; ++i) {
    // The window is full from the first character on, so that every step is the same graph.
    Tensor logits = net(Tensor::from<uint8_t>(window, {1, context}))
                        .slice(1, context - 1, context)
                        .reshape({flags.net.vocabulary});
    const auto known = static_cast<int64_t>(letters.size());
    if (known < flags.net.vocabulary) logits = logits.slice(0, 0, known);
    // The largest of logits with Gumbel noise falls on each letter with its probability.
    const Tensor noise = -(-Tensor::uniform(logits.shape(), 1e-9, 1).log()).log();
    const auto next = static_cast<uint8_t>((logits + noise).argmax().item());
    window.erase(window.begin());
    window.push_back(next);
    out.push_back(letters[next]);
  }
  return out;
}

void Train(const Flags& flags, const Characters& characters) {
  GptTrainer trainer(Tensor::from<uint8_t>(characters.numbers), flags.net, flags.batch, flags.lr);
  Clock::time_point begin = Clock::now();
  double loss = NAN, first_step_from_start_s = 0, step_ms = 0;
  for (int64_t step = 1; step <= flags.steps; ++step) {
    const Tensor result = trainer.Step();
    if (step != 1 && step % flags.print_every != 0 && step != flags.steps) continue;
    loss = result.item();
    if (step == 1) {  // compiles
      first_step_from_start_s = SecondsSince(kProcessStart);
      if (!flags.json)
        absl::PrintF("step 1  loss %.4f  %.0f ms\n", loss, SecondsSince(begin) * 1e3);
      begin = Clock::now();
    } else {
      step_ms = SecondsSince(begin) * 1e3 / static_cast<double>(step - 1);
      if (!flags.json) absl::PrintF("step %d  loss %.4f  %.1f ms/step\n", step, loss, step_ms);
    }
    std::fflush(stdout);
  }
  if (flags.json)
    absl::PrintF(
        "{\"steps\": %d, \"loss\": %.6f, \"first_step_from_start_s\": %.3f, \"step_ms\": %.3f}\n",
        flags.steps, loss, first_step_from_start_s, step_ms);
  if (flags.write > 0) absl::PrintF("\n%s\n", Write(trainer.net(), flags, characters.letters));
}

int Main(Flags flags) {
  std::ifstream file(flags.text, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (static_cast<int64_t>(text.size()) <= flags.net.context) {
    std::fprintf(stderr, "gpt: %s is no file of more than %lld characters\n", flags.text.c_str(),
                 static_cast<long long>(flags.net.context));
    return 1;
  }
  const Characters characters(text);
  const auto letters = static_cast<int64_t>(characters.letters.size());
  flags.net.vocabulary = std::max(letters, flags.vocabulary);
  if (flags.bf16) flags.net.products = DType::kBF16;
  const absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  if (!session.ok()) {
    std::fprintf(stderr, "gpt: %s\n", session.status().ToString().c_str());
    return 2;
  }
  int code = 0;
  try {
    if (flags.seed) Tensor::manual_seed(*flags.seed);
    Train(flags, characters);
  } catch (const Error& error) {
    std::fprintf(stderr, "gpt: %s\n", error.what());
    code = 1;
  }
  const absl::StatusOr<session::Stats> stats = CloseSession();
  if (stats.ok() && !flags.json)
    absl::PrintF("%.3f s billed, $%.6f\n", stats->seconds_billed, stats->cost_micro_usd / 1e6);
  return code;
}

}  // namespace
}  // namespace outboard::examples

int main(int argc, char** argv) {
  outboard::examples::Flags flags;
  outboard::cli::Arguments app(
      "gpt", "Trains a transformer on a text in the cloud, character by character");
  app.Add("--text", &flags.text, "File to learn from").Required();
  app.Add("--steps", &flags.steps, "Training steps").Positive();
  app.Add("--batch", &flags.batch, "Passages in a step").Positive();
  app.Add("--layers", &flags.net.layers, "Transformer blocks").Positive();
  app.Add("--width", &flags.net.width, "Numbers for each character").Positive();
  app.Add("--heads", &flags.net.heads, "Divides the width").Positive();
  app.Add("--context", &flags.net.context, "Characters in a passage").Positive();
  app.Add("--vocabulary", &flags.vocabulary,
          "Characters that the net can tell apart, where that is more than the text has")
      .Positive();
  app.Add("--bf16", &flags.bf16, "Multiply matrices of bf16; weights stay f32");
  app.Add("--lr", &flags.lr, "Learning rate");
  app.Add("--print-every", &flags.print_every, "Steps between two lines").Positive();
  app.Add("--write", &flags.write, "Characters to write at the end");
  app.Add("--json", &flags.json, "Print the training's summary as one JSON object");
  app.Add("--seed", &flags.seed, "Seed of the random numbers (else SEED, else a fresh one)");
  if (const std::optional<int> exit_code = app.Parse(argc, argv)) return *exit_code;
  if (flags.net.width % flags.net.heads != 0) {
    std::fprintf(stderr, "gpt: %lld heads do not divide a width of %lld\n",
                 static_cast<long long>(flags.net.heads), static_cast<long long>(flags.net.width));
    return 1;
  }
  return outboard::examples::Main(flags);
}
