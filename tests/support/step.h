// Runs one step through a session and checks its value to the last bit: shows that a session is
// unaffected by a fault elsewhere.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/session/session.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::test {

// A Run of `sink`; its graph is sent once per session.
inline session::RunRequest RequestOf(const UOp* sink, std::vector<uint64_t> inputs,
                                     std::vector<uint64_t> outputs, bool fetch) {
  EncodedGraph encoded = EncodeGraph(sink).value();
  session::RunRequest request;
  request.graph_id = encoded.id.bytes;
  request.graph = std::make_shared<const std::string>(encoded.bytes);
  request.inputs = std::move(inputs);
  request.outputs = std::move(outputs);
  if (fetch) request.fetch = {0};
  return request;
}

// x + x of three floats. DATA_LOSS if the answer is wrong.
inline absl::Status Step(Session& session) {
  Graph g;
  const UOp* x = Param(g, 0, DType::kF32, {Dim(3)});
  const float in[] = {1, 2.5, -3};
  const float expected[] = {2, 5, -6};
  const int64_t dims[] = {3};
  const uint64_t input = session.NewHandle(), output = session.NewHandle();
  absl::Status put =
      session.Put(input, DType::kF32, dims, {reinterpret_cast<const char*>(in), sizeof in});
  if (!put.ok()) return put;
  auto seq = session.Run(RequestOf(Sink(g, {Add(g, x, x)}), {input}, {output}, /*fetch=*/true));
  if (!seq.ok()) return seq.status();
  auto value = session.Await(*seq, 0);
  if (!value.ok()) return value.status();
  session.Release(input);
  session.Release(output);
  const bool right = value->bytes.size() == sizeof expected &&
                     std::memcmp(value->bytes.data(), expected, sizeof expected) == 0;
  return right ? absl::OkStatus() : absl::DataLossError("a wrong value");
}

}  // namespace outboard::test
