#include "tests/bench/gpu_decode_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "client/tensor/tensor.h"
#include "client/tensor/variable.h"
#include "runtime/devices.h"
#include "tests/bench/gpu_plan.h"
#include "tests/bench/report.h"

namespace outboard::bench {
namespace {

constexpr DType kType = DType::kBF16;

// Small numbers, as of a model that has been trained.
Tensor Drawn(const Dims& dims) {
  Tensor weight = Tensor::uniform(dims, -0.04, 0.04).cast(kType).state_();
  weight.realize();
  return weight;
}

// Weights [out, in], as they are stored elsewhere.
struct Product {
  Product(int64_t in, int64_t out) : weight(Drawn({out, in})), bias(Drawn({out})) {}
  Tensor operator()(const Tensor& x) const { return x.linear(weight.transpose(), bias); }
  Tensor weight, bias;
};

struct Norm {
  explicit Norm(int64_t width) : gain(Drawn({width})), bias(Drawn({width})) {}
  Tensor operator()(const Tensor& x) const {  // in f32, as PyTorch's
    return (x.cast(DType::kF32).layernorm() * gain.cast(DType::kF32) + bias.cast(DType::kF32))
        .cast(kType);
  }
  Tensor gain, bias;
};

struct Layer {
  explicit Layer(const DecodeModel& m)
      : norm1(m.width),
        norm2(m.width),
        three(m.width, 3 * m.width),
        out(m.width, m.width),
        up(m.width, 4 * m.width),
        down(4 * m.width, m.width),
        keys(Drawn({m.heads, m.context, m.width / m.heads})),
        values(Drawn({m.heads, m.context, m.width / m.heads})) {}
  Norm norm1, norm2;
  Product three, out, up, down;
  Tensor keys, values;  // what was written before is drawn
};

// As client/examples/gpt_decoder.h, but of bf16 and with joined projections.
class Decoder {
 public:
  explicit Decoder(const DecodeModel& model)
      : model_(model),
        embedding_(Drawn({model.vocabulary, model.width})),
        positions_(Drawn({model.context, model.width})),
        norm_(model.width),
        place_("place", 0, model.context - 1) {
    for (int64_t i = 0; i < model.layers; ++i) layers_.emplace_back(model);
  }

  // The likeliest token after `token` [1], at `position`.
  Tensor Step(const Tensor& token, int64_t position) {
    const SymInt at = place_.bind(position);
    Tensor x = embedding_[token] + positions_.slice(0, at, at + 1);
    for (Layer& layer : layers_) {
      x = x + Attention(layer, layer.norm1(x), at);
      x = x + layer.down(layer.up(layer.norm2(x)).gelu());
    }
    return norm_(x).matmul(embedding_.transpose()).argmax(-1);
  }

 private:
  Tensor Attention(Layer& layer, const Tensor& x, const SymInt& at) {
    const int64_t width = model_.width, heads = model_.heads, head = width / heads;
    const Tensor three = layer.three(x);
    const auto part = [&](int64_t i) {
      return three.slice(1, i * width, (i + 1) * width).reshape({heads, 1, head});
    };
    const Tensor here = Tensor::arange(model_.context).reshape({-1, 1}) == at;
    layer.keys.assign(here.where(part(1), layer.keys));
    layer.values.assign(here.where(part(2), layer.values));
    const Tensor keys = layer.keys.slice(1, 0, at + 1), values = layer.values.slice(1, 0, at + 1);
    const Tensor scores = part(0).matmul(keys.transpose()).cast(DType::kF32) *
                          (1 / std::sqrt(static_cast<double>(head)));
    return layer.out(scores.softmax().cast(kType).matmul(values).reshape({1, width}));
  }

  const DecodeModel model_;
  const Tensor embedding_, positions_;
  const Norm norm_;
  const Variable place_;
  std::vector<Layer> layers_;
};

class Writing {
 public:
  Writing(GpuEngineSession& session, const DecodeModel& model)
      : session_(session), model_(model), decoder_(model) {}

  // Of a token: tokens go from one to the next without the host, which reads the last one.
  absl::StatusOr<double> Seconds() {
    std::vector<double> rounds;
    for (int round = 0; round <= kDecodeRounds; ++round) {
      Tensor token = Tensor::from<int32_t>({1});
      OB_RETURN_IF_ERROR(SessionIfConnected()->Sync());
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < model_.tokens; ++i) {
        token = decoder_.Step(token, model_.context - model_.tokens + i);
        token.realize();  // when nothing but the caches refers to them: they are updated in place
      }
      const auto last = token.item<int64_t>();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (last < 0 || last >= model_.vocabulary)
        return absl::InternalError(absl::StrCat("a token is ", last));
      if (round > 0) rounds.push_back(taken.count() / static_cast<double>(model_.tokens));
      else plans_ = session_.plans_made();
    }
    return Quantile(rounds, 0.5);
  }
  // Graphs that were compiled after the first round of the last Seconds.
  int64_t late_plans() const {
    return static_cast<int64_t>(session_.plans_made()) - static_cast<int64_t>(plans_);
  }

 private:
  GpuEngineSession& session_;
  const DecodeModel model_;
  Decoder decoder_;
  uint64_t plans_ = 0;
};

}  // namespace

absl::StatusOr<DecodeMeasured> MeasureDecode(const DecodeModel& model, double search_seconds) {
  DecodeMeasured measured;
  {
    OB_ASSIGN_OR_RETURN(const auto device, runtime::MakeDevice(std::string(runtime::kCuda), {}));
    OB_ASSIGN_OR_RETURN(measured.copied_per_s,
                        CopiedBytesPerSecond(*device, std::max<int64_t>(4, model.WeightBytes() / 4),
                                             kRepeatsLeast));
  }
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<GpuEngineSession> session, GpuEngineSession::Open());
  try {
    Tensor::manual_seed(1);
    Writing writing(*session, model);
    OB_ASSIGN_OR_RETURN(const double nobeam, writing.Seconds());
    measured.token = {nobeam, nobeam};
    measured.compiled_late = writing.late_plans();
    session->SearchAndMeasure("decode_1b5", search_seconds, measured.token,
                              [&] {
                                const auto seconds = writing.Seconds();
                                if (seconds.ok()) measured.compiled_late = writing.late_plans();
                                return seconds;
                              });
    return measured;
  } catch (const Error& error) {
    return absl::InternalError(absl::StrCat("decode_1b5: ", error.what()));
  }
}

}  // namespace outboard::bench
