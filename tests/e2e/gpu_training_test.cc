// Trainings on the PTX machine (tests/gpu), through the CUDA device that ships and the driver's
// calls that it makes, against the same trainings on the processor: the network of beautiful_mnist,
// and transformers, of short rows and of some whose attention keeps no scores.
//
// OUTBOARD_TRAINING_STEPS=n: so many steps instead of a few; a step of the first takes seconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "client/examples/gpt.h"
#include "client/examples/mnist.h"
#include "client/session/current_session.h"
#include "tests/support/device.h"
#include "tests/support/executor_link.h"
#include "tests/support/paths.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"

namespace outboard {
namespace {

struct Trained {
  std::vector<double> losses;
  uint64_t launches = 0;
};

using Training = std::function<std::function<Tensor()>()>;

// Trains each for `steps` steps on the device of this kind, one after the other, in one session of
// their own: the kernels that they have in common are compiled once. Launches are counted together.
std::vector<Trained> TrainAllOn(const char* kind, int steps, const std::vector<Training>& trainings,
                                schedule::ScorePolicy scores = schedule::ScorePolicy::kByCost) {
  std::vector<Trained> all;
  auto device = ValueOrDie(runtime::MakeDevice(kind, {.memory_bytes_max = int64_t{1} << 30}));
  worker::InProcessCompiler compiler({.target = worker::TargetOfDevice(device->properties())});
  SetSession(ValueOrDie(
      Session::ConnectLink(std::make_unique<test::ExecutorLink>(worker::MakeCompiledEngine(
                               &compiler, std::move(device), {.scores = scores})),
                           session::SessionOptions{})));
  for (const Training& begin : trainings) {
    Trained& trained = all.emplace_back();
    Tensor::manual_seed(11);
    const std::function<Tensor()> step = begin();
    for (int i = 0; i < steps; ++i) trained.losses.push_back(step().item());
    EXPECT_TRUE(SessionIfConnected()->Sync().ok());
    trained.launches = SessionIfConnected()->stats().kernels_launched;
  }
  EXPECT_TRUE(CloseSession().ok());
  SetSession(nullptr);
  return all;
}

Trained TrainOn(const char* kind, int steps, const Training& begin,
                schedule::ScorePolicy scores = schedule::ScorePolicy::kByCost) {
  return TrainAllOn(kind, steps, {begin}, scores).front();
}

int Steps(int otherwise) {
  const char* const text = std::getenv("OUTBOARD_TRAINING_STEPS");
  return text != nullptr ? std::atoi(text) : otherwise;
}

// What docs/semantics.md says of trainings ("Between devices"): of the loss in the first step, and
// more in each that follows. Both compute one thing in f32, in other orders; a step's differences
// of some units in the last place go into the next one's weights, and grow there.
struct Bound {
  double first_step = 1e-5, each_step = 1e-4;
};
// What is rounded to bf16 may be rounded the other way where the number before differs in its last
// place: by 2^-7 of itself, twice u. A loss is a mean over many of these.
constexpr Bound kOfBf16 = {.first_step = 0x1p-9, .each_step = 0x1p-9};

void ExpectSameLosses(const Trained& wanted, const Trained& got, const Bound& of = {}) {
  ASSERT_EQ(wanted.losses.size(), got.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    std::printf("step %zu: %.7f on the processor, %.7f on the PTX machine\n", i, wanted.losses[i],
                got.losses[i]);
    const double bound = of.first_step + of.each_step * static_cast<double>(i);
    EXPECT_NEAR(got.losses[i], wanted.losses[i], bound * std::abs(wanted.losses[i]))
        << "step " << i;
  }
}

// That the bound would see it if the updates were these other ones: by how many times it is
// exceeded, where it is exceeded most.
void ExpectOtherLosses(const char* update, const Trained& wanted, const Trained& other,
                       const Bound& of = {}) {
  ASSERT_EQ(wanted.losses.size(), other.losses.size());
  double most = 0;
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    const double bound = of.first_step + of.each_step * static_cast<double>(i);
    most = std::max(most, std::abs(other.losses[i] - wanted.losses[i]) /
                              (bound * std::abs(wanted.losses[i])));
  }
  std::printf("%s: %.2f times the bound\n", update, most);
  EXPECT_GT(most, 1) << update << " is within the bound";
}

class GpuTraining : public ::testing::Test {
 protected:
  void SetUp() override { setenv("OUTBOARD_CUDA_DRIVER", test::kFakeCuda, /*overwrite=*/1); }
};

// Digits that a network can tell apart: a bright row at the height of the label. Steps are small:
// Adam divides a gradient by its own size, so that one that is nothing but rounding moves its
// weight by as much as any other, and with steps of 1e-3 and a batch norm over two images two
// orders of summation on one processor differ by 0.5 % after three steps. That such small steps are
// seen at all is shown by three wrong ones.
TEST_F(GpuTraining, OfMnist_HasTheProcessorsLosses) {
  constexpr int64_t kImages = 16, kSide = 28, kClasses = 10;
  const auto begin = [](double lr) -> Training {
    return [lr] {
      std::mt19937 random(3);
      std::vector<uint8_t> images(kImages * kSide * kSide), labels(kImages);
      for (int64_t i = 0; i < kImages; ++i) {
        labels[static_cast<size_t>(i)] = static_cast<uint8_t>(i % kClasses);
        for (int64_t p = 0; p < kSide * kSide; ++p)
          images[static_cast<size_t>(i * kSide * kSide + p)] =
              static_cast<uint8_t>(random() % 64 + (p / kSide / 2 - 2 == i % kClasses ? 190 : 0));
      }
      const auto trainer = std::make_shared<examples::MnistTrainer>(
          Tensor::from<uint8_t>(images).reshape({kImages, 1, kSide, kSide}).state_(),
          Tensor::from<uint8_t>(labels).state_(), /*batch=*/2, lr);
      return std::function<Tensor()>([trainer] { return trainer->Step(); });
    };
  };
  const int steps = Steps(3);
  constexpr double kLr = 1e-5;
  const std::vector<Trained> wanted =
      TrainAllOn("cpu", steps, {begin(kLr), begin(0), begin(kLr / 2), begin(1.5 * kLr)});
  ExpectOtherLosses("no update", wanted[0], wanted[1]);
  ExpectOtherLosses("half an update", wanted[0], wanted[2]);
  ExpectOtherLosses("an update that is half as large again", wanted[0], wanted[3]);
  ExpectSameLosses(wanted[0], TrainOn("cuda", steps, begin(kLr)));
}

TEST_F(GpuTraining, OfATransformerOfTwoLayers_HasTheProcessorsLosses) {
  const auto begin = [] {
    std::vector<uint8_t> text;
    for (int i = 0; i < 400; ++i) text.push_back(static_cast<uint8_t>(i * i % 13));
    const auto trainer = std::make_shared<examples::GptTrainer>(
        Tensor::from<uint8_t>(text).state_(),
        examples::GptOptions{.vocabulary = 13, .layers = 2, .width = 32, .heads = 4, .context = 16},
        /*batch=*/4, /*lr=*/3e-3);
    return std::function<Tensor()>([trainer] { return trainer->Step(); });
  };
  const int steps = Steps(12);
  const Trained wanted = TrainOn("cpu", steps, begin), got = TrainOn("cuda", steps, begin);
  ExpectSameLosses(wanted, got);
  EXPECT_LT(got.losses.back(), got.losses.front()) << "nothing was learnt";
  EXPECT_LT(got.launches, wanted.launches) << "no kernels share a launch";
}

// Rows so long that attention and its gradients compute their scores again, by matrix units.
void TrainWithOnlineAttention(const examples::GptOptions& options, const Bound& bound) {
  const auto begin = [&] {
    std::vector<uint8_t> text;
    for (int i = 0; i < 800; ++i) text.push_back(static_cast<uint8_t>(i * i % 13));
    const auto trainer = std::make_shared<examples::GptTrainer>(
        Tensor::from<uint8_t>(text).state_(), options, /*batch=*/2, /*lr=*/3e-3);
    return std::function<Tensor()>([trainer] { return trainer->Step(); });
  };
  const int steps = Steps(4);
  const Trained wanted = TrainOn("cpu", steps, begin), got = TrainOn("cuda", steps, begin);
  ExpectSameLosses(wanted, got, bound);
  EXPECT_LT(got.losses.back(), got.losses.front()) << "nothing was learnt";
  const Trained kept = TrainOn("cuda", steps, begin, schedule::ScorePolicy::kKeep);
  ExpectSameLosses(wanted, kept, bound);
  EXPECT_LT(got.launches, kept.launches) << "scores were kept";
}

TEST_F(GpuTraining, OfATransformerInBf16_HasTheProcessorsLosses) {
  TrainWithOnlineAttention({.vocabulary = 13,
                            .layers = 2,
                            .width = 32,
                            .heads = 2,
                            .context = 64,
                            .products = DType::kBF16},
                           kOfBf16);
}

TEST_F(GpuTraining, OfATransformerOfWideHeads_HasTheProcessorsLosses) {
  TrainWithOnlineAttention({.vocabulary = 13, .layers = 1, .width = 64, .heads = 1, .context = 80},
                           {});
}

}  // namespace
}  // namespace outboard
