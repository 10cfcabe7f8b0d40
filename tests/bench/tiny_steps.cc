#include "tests/bench/tiny_steps.h"

#include <chrono>
#include <string>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::bench {

TinySteps::TinySteps(Session& session) : session_(session) {
  Graph g;
  const UOp* const x = BufferNode(g, 1, DType::kF32, {Dim(4)});
  const EncodedGraph graph = ValueOrDie(
      EncodeGraph(Sink(g, {Add(g, x, Full(g, ConstFloat(g, DType::kF32, 1), x->shape))})));
  request_.graph_id = graph.id.bytes;
  request_.graph = std::make_shared<const std::string>(graph.bytes);
  const std::vector<int64_t> dims = {4};
  request_.outputs = {session.NewHandle()};
  OB_CHECK_OK(session.Put(request_.outputs[0], DType::kF32, dims, std::string(16, '\0')));
}

uint64_t TinySteps::Run(bool fetch) {
  const uint64_t last = request_.outputs[0];
  request_.inputs = {last};
  request_.outputs = {session_.NewHandle()};
  request_.fetch.assign(fetch ? 1 : 0, 0);
  const uint64_t seq = ValueOrDie(session_.Run(request_));
  session_.Release(last);
  return seq;
}

std::vector<double> MeasureTinySteps(Session& session, int steps) {
  using Clock = std::chrono::steady_clock;
  TinySteps tiny(session);
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point begin = Clock::now();
    ValueOrDie(session.Await(tiny.Run(/*fetch=*/true), 0));
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  times.erase(times.begin(), times.begin() + steps / 10);
  return times;
}

std::unique_ptr<Session> ConnectTo(const Cloud& cloud) {
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  return ValueOrDie(Session::Connect(options));
}

}  // namespace outboard::bench
