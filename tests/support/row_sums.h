// A program for several devices: every step sums over rows of a state of which each has a part, and
// so needs all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "client/session/session.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::test {

// Its session has kSpread: so small a program is quickest whole on each device, without a word
// between them, and any other spread would leave it so.
class RowSums {
 public:
  static constexpr char kSpread[] = "fsdp";
  explicit RowSums(std::unique_ptr<Session> session) : session_(std::move(session)) {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {kRows, kColumns});
    const UOp* const state = Param(g, 1, DType::kF32, {kRows, kColumns});
    const UOp* const next = Add(g, x, state);
    const EncodedGraph graph = ValueOrDie(
        EncodeGraph(Sink(g, {next, Reduce(g, Op::kAdd, Mul(g, next, x), {0})})));
    request_.graph_id = graph.id.bytes;
    request_.graph = std::make_shared<const std::string>(graph.bytes);
    std::vector<float> numbers;
    for (int i = 0; i < kRows * kColumns; ++i)
      numbers.push_back(static_cast<float>(i % 7 + 1) / (4 * kRows));
    const uint64_t in = session_->NewHandle(), state_at_first = session_->NewHandle();
    const std::vector<int64_t> dims = {kRows, kColumns};
    OB_CHECK_OK(session_->Put(in, DType::kF32, dims, Bytes(numbers)));
    OB_CHECK_OK(session_->Put(state_at_first, DType::kF32, dims, Bytes(numbers)));
    request_.inputs = {in, state_at_first};
    request_.fetch = {1};
  }
  // The bytes of its sums.
  absl::StatusOr<std::string> Step() {
    request_.outputs = {session_->NewHandle(), session_->NewHandle()};
    OB_ASSIGN_OR_RETURN(const uint64_t seq, session_->Run(request_));
    OB_ASSIGN_OR_RETURN(const HostTensor value, session_->Await(seq, 1));
    session_->Release(request_.inputs[1]);
    session_->Release(request_.outputs[1]);
    request_.inputs[1] = request_.outputs[0];
    return value.bytes;
  }
  Session& session() { return *session_; }

 private:
  static constexpr int64_t kRows = 64, kColumns = 5;
  static std::string Bytes(const std::vector<float>& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
  }
  std::unique_ptr<Session> session_;
  session::RunRequest request_;
};

}  // namespace outboard::test
