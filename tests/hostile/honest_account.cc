#include "tests/hostile/honest_account.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/build.h"
#include "tests/support/step.h"

namespace outboard::test {
namespace {

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

HonestAccount::HonestAccount(const std::string& target, std::string key)
    : proxy_(target), key_(std::move(key)) {
  State state;
  for (int i = 0; i < kElements; ++i) {
    state.f.push_back(1.0f / static_cast<float>(i + 3));
    state.n.push_back(i * 7919);
    x_.push_back(static_cast<float>(i) / 7.0f);
    m_.push_back(i - 100);
  }
  expected_.push_back(state);
  for (int k = 0; k < kStepsMax; ++k) {
    for (int i = 0; i < kElements; ++i) {
      const auto at = static_cast<size_t>(i);
      // The product is exact, so that a fused multiplication and addition has the same bits.
      state.f[at] = state.f[at] * 0.5f + x_[at];
      state.n[at] = static_cast<int32_t>(static_cast<uint32_t>(state.n[at]) * 3u +
                                         static_cast<uint32_t>(m_[at]));
    }
    expected_.push_back(state);
  }
}

session::SessionOptions HonestAccount::Options() {
  session::SessionOptions options;
  options.target = proxy_.address();
  options.key = key_;
  options.tell = [this](const std::string& line) {
    std::lock_guard lock(mutex_);
    told_ += line + "\n";
  };
  return options;
}

absl::Status HonestAccount::Begin() {
  auto session = Session::Connect(Options());
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  Graph g;
  const Dim size(kElements);
  const UOp* const f = Param(g, 0, DType::kF32, {size});
  const UOp* const x = Param(g, 1, DType::kF32, {size});
  const UOp* const n = Param(g, 2, DType::kI32, {size});
  const UOp* const m = Param(g, 3, DType::kI32, {size});
  const UOp* const half = Full(g, ConstFloat(g, DType::kF32, 0.5), {size});
  const UOp* const three = Full(g, ConstInt(g, DType::kI32, 3), {size});
  const UOp* const sink = Sink(g, {Add(g, Mul(g, f, half), x), Add(g, Mul(g, n, three), m)});
  request_ = RequestOf(sink, {0, session_->NewHandle(), 0, session_->NewHandle()}, {0, 0}, false);
  request_.fetch = {0, 1};
  request_.donate = {0, 2};
  f_ = session_->NewHandle();
  n_ = session_->NewHandle();
  const int64_t dims[] = {kElements};
  for (absl::Status status : {session_->Put(f_, DType::kF32, dims, BytesOf(expected_[0].f)),
                              session_->Put(n_, DType::kI32, dims, BytesOf(expected_[0].n)),
                              session_->Put(request_.inputs[1], DType::kF32, dims, BytesOf(x_)),
                              session_->Put(request_.inputs[3], DType::kI32, dims, BytesOf(m_))})
    if (!status.ok()) return status;
  return Step();
}

absl::Status HonestAccount::Step() {
  request_.inputs[0] = f_;
  request_.inputs[2] = n_;
  f_ = request_.outputs[0] = session_->NewHandle();
  n_ = request_.outputs[1] = session_->NewHandle();
  auto seq = session_->Run(request_);
  if (!seq.ok()) return seq.status();
  auto f = session_->Await(*seq, 0), n = session_->Await(*seq, 1);
  if (!f.ok()) return f.status();
  if (!n.ok()) return n.status();
  if (++steps_ > kStepsMax) return absl::OutOfRangeError("more steps than were computed before");
  const State& expected = expected_[static_cast<size_t>(steps_)];
  if (f->bytes != BytesOf(expected.f) || n->bytes != BytesOf(expected.n))
    return absl::DataLossError(absl::StrCat("step ", steps_, " has a wrong bit"));
  std::lock_guard lock(mutex_);
  if (!told_.empty()) return absl::AbortedError("the session told: " + told_);
  return absl::OkStatus();
}

absl::Status HonestAccount::FreshStep() {
  session::SessionOptions options = Options();
  // It may have to wait for the device of a session that was cut off a moment ago.
  options.tell = [](const std::string&) {};
  auto session = Session::Connect(options);
  if (!session.ok()) return session.status();
  if (absl::Status status = test::Step(**session); !status.ok()) return status;
  return (*session)->Close();
}

absl::Status HonestAccount::End() { return session_->Close(); }

}  // namespace outboard::test
