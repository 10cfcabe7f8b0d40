#include "tests/compiler/written_programs.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "tests/compiler/program_writer.h"

namespace outboard::test {

WrittenProgram ProgramWriter::Write() {
  products_left_ =
      static_cast<double>(kProductsMax) / static_cast<double>(int64_t{1} << r_.Below(4));
  dtype_ = std::vector<DType>{DType::kF32,  DType::kF32,  DType::kF32,
                              DType::kBF16, DType::kBF16, DType::kF16}[r_.Below(6)];
  narrow_ = dtype_ != DType::kF32;
  classes_ = Size(1, 600);
  with_gradients_ = r_.OneIn(2);
  if (r_.OneIn(8)) {
    with_gradients_ = false;
    r_.OneIn(2) ? BoundedAttention() : BoundedRows();
    RealizeAll();
    return Taken();
  }
  large_ = r_.OneIn(2);
  if (large_) {
    products_left_ = 2 * kProductsMax;
    BeginLarge();
    for (int64_t steps = 1 + r_.Below(5); steps > 0; --steps) StepOfLarge();
  } else {
    Begin();
    for (int64_t steps = 1 + r_.Below(7); steps > 0; --steps) Step();
  }
  Finish();
  return Taken();
}

void ProgramWriter::Begin() {
  Dims dims;
  switch (r_.Below(8)) {
    case 0:
    case 1:
    case 2: {
      const int64_t rows = Size(1, 1100);
      dims = {rows, Size(1, std::min<int64_t>(r_.OneIn(3) ? 4500 : 1100, kElementsMax / rows))};
      if (r_.OneIn(6)) std::swap(dims[0], dims[1]);
      break;
    }
    case 3:
    case 4:
    case 5: {
      const int64_t batch = 1 + r_.Below(4), rows = Size(1, 513);
      dims = {batch, rows, Size(1, std::min<int64_t>(1100, kElementsMax / rows / batch))};
      break;
    }
    case 6: {
      const int64_t channels = Size(1, 65), side = Size(3, 33),
                    other = r_.OneIn(2) ? side : Size(3, 33);
      dims = {1 + r_.Below(3), channels, side, other};
      while (Count(dims) > kElementsMax) dims[1] = (dims[1] + 1) / 2;
      break;
    }
    default: dims = {Size(1, 1027)};
  }
  if (r_.OneIn(4) && dims.size() > 1) {
    Dims index(dims.begin(), dims.end() - 1);
    if (Count(dims) * classes_ < 4'000'000) {
      const NamedTensor table = Weight({classes_, dims.back()}, 3), i = Indices(index, classes_);
      Keep(table.t[i.t], 1, absl::StrCat(table.name, "[", i.name, "]"));
      return;
    }
  }
  NamedTensor x = Floats(dims);
  if (with_gradients_ && r_.OneIn(2)) {
    x.t.requires_grad_();
    weights_.push_back(x.t);
  }
  Keep(x.t, 1, x.name);
}

void ProgramWriter::BeginLarge() {
  const int64_t rows = std::vector<int64_t>{128, 255, 256, 256, 257, 300,  384,
                                            511, 512, 512, 513, 768, 1000, 1024}[r_.Below(14)];
  const int64_t k =
      std::vector<int64_t>{16, 31, 32, 48, 64, 64, 65, 96, 128, 128, 131, 192, 256}[r_.Below(13)];
  const int64_t batch = rows % 4 == 0 && r_.OneIn(3) ? 4 : 1;
  NamedTensor x = Floats(batch == 1 ? Dims{rows, k} : Dims{batch, rows / batch, k});
  if (with_gradients_ && r_.OneIn(2)) {
    x.t.requires_grad_();
    weights_.push_back(x.t);
  }
  Keep(x.t, 1, x.name);
  if (r_.OneIn(3)) return Network(k);
  Linear();
}

void ProgramWriter::Network(int64_t k) {
  const int64_t layers = 2 + r_.Below(2), rows = Count(pool_.back().t.shape()) / k;
  const int64_t activation = r_.Below(narrow_ ? 3 : 4);
  with_gradients_ = true;
  Value x = pool_.back();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t n = std::vector<int64_t>{48, 64, 65, 72, 96, 128, 130}[r_.Below(7)];
    const NamedTensor w = Weight({k, n}, k), b = Weight({n}, 3);
    Tensor y = x.t.matmul(w.t) + b.t;
    if (layer + 1 < layers)
      y = activation == 0   ? y.gelu()
          : activation == 1 ? y.silu()
          : activation == 2 ? y.tanh()
                            : y.relu();
    x = Keep(y, x.size,
             absl::StrCat("act", layer + 1 < layers ? activation : -1, "(", x.name, " @ ", w.name,
                          " + ", b.name, ")"));
    Spend(static_cast<double>(3 * rows * k * n));
    k = n;
  }
}

void ProgramWriter::StepOfLarge() {
  switch (r_.Below(16)) {
    case 0:
    case 1:
    case 2:
    case 3: return Linear();
    case 4:
    case 5: return Fold();
    case 6:
    case 7: return Scan();
    case 8: return Norm();
    case 9: return Elementwise();
    case 10: return Move();
    case 11: return Residual();
    case 12: return Attention();
    case 13: return Gated();
    case 14: return Together();
    default: return Join();
  }
}

void ProgramWriter::Step() {
  switch (r_.Below(31)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: return Linear();
    case 5: return Together();
    case 6:
    case 7: return Norm();
    case 8:
    case 9: return Attention();
    case 10:
    case 11: return Convolve();
    case 12: return Pool();
    case 13:
    case 14: return Scan();
    case 15: return Gather();
    case 16: return Scatter();
    case 17:
    case 18: return Move();
    case 19:
    case 20: return Elementwise();
    case 21:
    case 22:
    case 23: return Fold();
    case 24: return Join();
    case 25: return Gated();
    case 26: return Quantized();
    case 27: return Integers();
    case 28: return Added();
    case 29: return Ranked();
    default: return Residual();
  }
}

void ProgramWriter::Finish() {
  const Value last = pool_.back();
  results_.push_back({last.t, last.name});
  for (int64_t others = r_.Below(4); others > 0; --others) {
    const Value v = Pick();
    results_.push_back({v.t, v.name});
  }
  if (with_gradients_ && !weights_.empty()) {
    const auto [loss, upstream] = Loss(last);
    if (upstream.empty() && r_.OneIn(3) && Update(loss)) return;
    size_t taken = 0;
    std::vector<Tensor> of;
    for (const Tensor& w : weights_)
      if (taken < 5 && !r_.OneIn(5)) of.push_back(w), ++taken;
    if (!of.empty())
      for (const Tensor& g : loss.gradient(of, upstream)) results_.push_back({g, "a gradient"});
  }
  if (r_.OneIn(6)) Overwrite(last);
  RealizeAll();
}

void ProgramWriter::RealizeAll() {
  std::vector<Tensor> tensors;
  for (const Result& result : results_) tensors.push_back(result.t);
  for (const Result& result : results_) Say("result ", result.text);
  realize(tensors);
}

ProgramWriter::LossAndUpstream ProgramWriter::Loss(const Value& last) {
  const Dims dims = last.t.shape();
  if (!dims.empty() && dims.back() > 1 && last.size < 30 && r_.OneIn(3)) {
    const Dims rows(dims.begin(), dims.end() - 1);
    const Tensor labels = Input(rows, DType::kI32, {.low = 0, .high = dims.back() - 1});
    const std::string name = Named(labels, "i");
    const Tensor loss = last.t.cast(DType::kF32).sparse_categorical_crossentropy(labels) *
                        static_cast<double>(Count(rows));
    results_.push_back(
        {loss, absl::StrCat("loss: crossentropy(", last.name, ", ", name, ") * rows")});
    return {loss, {}};
  }
  if (r_.OneIn(2)) {
    const Value target = LikeInput(last);
    const Tensor d = last.t.cast(DType::kF32) - target.t.cast(DType::kF32);
    const Tensor loss = (d * d).sum();
    results_.push_back(
        {loss, absl::StrCat("loss: square of ", last.name, " - ", target.name, ", summed")});
    return {loss, {}};
  }
  const Value upstream = LikeInput(last);
  Say("gradients of ", last.name, " by ", upstream.name);
  return {last.t, upstream.t};
}

bool ProgramWriter::Update(const Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error&) {
    return false;  // it was computed from no weight
  }
  std::vector<Tensor> parameters;
  for (Tensor& w : weights_)
    if (!w.grad().empty()) parameters.push_back(w);
  if (parameters.empty()) return false;
  std::vector<Tensor> compute;
  for (const Result& result : results_) compute.push_back(result.t);
  for (const Result& result : results_) Say("result ", result.text);
  SomeOptimizer(parameters)->step({}, compute);
  return true;
}

// Numbers that are added to square roots are large enough that a small gradient's rounding does not
// decide the direction of its step.
std::unique_ptr<optim::Optimizer> ProgramWriter::SomeOptimizer(
    const std::vector<Tensor>& parameters) {
  constexpr double kRate = 0.01, kAdded = 0.1;
  std::unique_ptr<optim::Optimizer> optimizer;
  switch (r_.Below(4)) {
    case 0:
      Say("a step of AdamW");
      optimizer = std::make_unique<optim::AdamW>(parameters, kRate, 0.9, 0.999, kAdded,
                                                 r_.OneIn(2) ? 0.1 : 0);
      break;
    case 1:
      Say("a step of LAMB");
      optimizer = std::make_unique<optim::LAMB>(parameters, kRate, 0.9, 0.999, kAdded, 0.1);
      break;
    default: {
      const double momentum = r_.OneIn(2) ? 0.9 : 0, decay = r_.OneIn(2) ? 0.1 : 0;
      const bool nesterov = momentum > 0 && r_.OneIn(2);
      Say("a step of SGD, momentum ", momentum, ", decay ", decay, nesterov ? ", Nesterov's" : "");
      optimizer = std::make_unique<optim::SGD>(parameters, kRate, momentum, decay, nesterov);
    }
  }
  // Its state: means of squares, and powers of what is less than 1.
  for (const uint64_t handle : session_->last.outputs) specs_[handle].positive = true;
  return optimizer;
}

void ProgramWriter::Overwrite(const Value& v) {
  state_ = Input(v.t.shape(), v.t.dtype(), {});
  const std::string name = Named(state_, "s");
  if (r_.OneIn(2)) {
    Say(name, " = ", name, " * 0.9 + ", v.name);
    state_.assign(state_ * 0.9 + v.t);
  } else if (v.t.rank() > 0) {
    Say(name, " = ", name, ".softmax() + ", v.name);
    state_.assign(state_.softmax() + v.t);
  }
}

WrittenProgram ProgramWriter::Taken() {
  const session::RunRequest& run = session_->last;
  WrittenProgram written;
  RandomCase& c = written.program;
  c.graph = std::make_unique<Graph>();
  c.sink = ValueOrDie(DecodeGraph(*c.graph, *run.graph));
  c.bindings = run.bindings;
  const std::vector<const UOp*> params = ParamsOf(c.sink);
  OB_CHECK(params.size() == run.inputs.size());
  for (size_t i = 0; i < params.size(); ++i)
    c.params.push_back(Filled(params[i], specs_[run.inputs[i]]));
  written.donated.assign(run.donate.begin(), run.donate.end());
  written.text = text_;
  written.narrow = narrow_;
  return written;
}

HostTensor ProgramWriter::Filled(const UOp* param, const Spec& spec) {
  HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
  const int width = ByteWidth(param->dtype);
  tensor.bytes.resize(static_cast<size_t>(tensor.ElementCount() * width));
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    char* const to = tensor.bytes.data() + i * width;
    if (IsFloat(param->dtype))
      StoreFloat(param->dtype,
                 RoundTo(param->dtype,
                         spec.scale * (spec.positive ? r_.Unit() : 2 * r_.Unit() - 1)),
                 to);
    else
      StoreInt(param->dtype, spec.low + r_.Below(spec.high - spec.low + 1), to);
  }
  return tensor;
}

WrittenProgram WriteProgram(uint64_t seed) { return ProgramWriter(seed).Write(); }

}  // namespace outboard::test
