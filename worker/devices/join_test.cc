#include "worker/devices/join_test.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::worker {
namespace {

// Small integers: their products and sums are exact in float32, in any order.
float Left(int64_t i, int64_t k) { return static_cast<float>((i * 3 + k * 5) % 7 - 3); }
float Right(int64_t k, int64_t j) { return static_cast<float>((k * 2 + j * 11) % 5 - 2); }

// One size that fills tiles, and one that leaves edges.
constexpr int64_t kProductSides[] = {256, 131};
constexpr int64_t kPieceBytes = int64_t{16} << 20;

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// f32[n, n] times f32[n, n].
const UOp* Product(Graph& g, int64_t n) {
  const UOp* const a =
      Expand(g, Reshape(g, Param(g, 0, DType::kF32, {n, n}), {n, n, 1}), {n, n, n});
  const UOp* const b =
      Expand(g, Reshape(g, Param(g, 1, DType::kF32, {n, n}), {1, n, n}), {n, n, n});
  return Sink(g, {Reshape(g, Reduce(g, Op::kAdd, Mul(g, a, b), {1}), {n, n})});
}

absl::Status TestProduct(Engine& engine, int64_t n, const JoinTestOptions& options) {
  std::vector<float> left, right, expected(static_cast<size_t>(n * n), 0.0F);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k) {
      left.push_back(Left(i, k));
      right.push_back(Right(i, k));
    }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j)
        expected[static_cast<size_t>(i * n + j)] +=
            left[static_cast<size_t>(i * n + k)] * right[static_cast<size_t>(k * n + j)];
  Graph g;
  const UOp* const sink = Product(g, n);
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  std::vector<DeviceArrayPtr> inputs;
  for (const std::vector<float>* values : {&left, &right}) {
    OB_ASSIGN_OR_RETURN(std::shared_ptr<DeviceArray> array,
                        engine.NewArray(DType::kF32, {n, n}));
    OB_RETURN_IF_ERROR(engine.device().Upload(array->address(), BytesOf(*values)));
    inputs.push_back(std::move(array));
  }
  OB_ASSIGN_OR_RETURN(const std::vector<DeviceArrayPtr> results,
                      engine.Run(encoded.id, sink, inputs, {}));
  std::vector<float> found(expected.size());
  OB_RETURN_IF_ERROR(engine.device().Download(
      results.front()->address(), static_cast<int64_t>(found.size() * sizeof(float)),
      found.data()));
  options.planted(std::as_writable_bytes(std::span(found)));
  const auto wrong = std::mismatch(found.begin(), found.end(), expected.begin());
  if (wrong.first == found.end()) return absl::OkStatus();
  const auto at = wrong.first - found.begin();
  return absl::FailedPreconditionError(absl::StrCat("a product of ", n, " by ", n, ": element ",
                                                    at / n, ", ", at % n, " is ", *wrong.first,
                                                    ", expected ", *wrong.second));
}

// Differs from word to word and from piece to piece, so that what is read is of this place.
uint64_t PatternAt(uint64_t word) {
  uint64_t mixed = (word + 1) * 0x9e3779b97f4a7c15;
  mixed ^= mixed >> 31;
  return mixed * 0xbf58476d1ce4e5b9;
}

// All pieces are written before the first is read: none lies where another one does.
absl::Status TestMemory(Engine& engine, const JoinTestOptions& options) {
  const auto words = static_cast<uint64_t>(kPieceBytes) / sizeof(uint64_t);
  std::vector<runtime::DeviceBuffer> pieces;
  std::vector<uint64_t> buffer(words);
  const auto count =
      std::max<uint64_t>(1, static_cast<uint64_t>(options.memory_bytes / kPieceBytes));
  for (uint64_t piece = 0; piece < count; ++piece) {
    auto memory = engine.NewBuffer(kPieceBytes);
    // A device with less than that is tested as far as it goes.
    if (absl::IsResourceExhausted(memory.status()) && piece > 0) break;
    if (!memory.ok()) return memory.status();
    for (uint64_t i = 0; i < words; ++i) buffer[i] = PatternAt(piece * words + i);
    OB_RETURN_IF_ERROR(engine.device().Upload(memory->address(), BytesOf(buffer)));
    pieces.push_back(*std::move(memory));
  }
  for (uint64_t piece = 0; piece < pieces.size(); ++piece) {
    OB_RETURN_IF_ERROR(
        engine.device().Download(pieces[piece].address(), kPieceBytes, buffer.data()));
    options.planted(std::as_writable_bytes(std::span(buffer)));
    for (uint64_t i = 0; i < words; ++i)
      if (const uint64_t expected = PatternAt(piece * words + i); buffer[i] != expected)
        return absl::FailedPreconditionError(
            absl::StrCat("the memory: word ", piece * words + i, " is 0x", absl::Hex(buffer[i]),
                         ", expected 0x", absl::Hex(expected)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TestDevice(Engine& engine, const JoinTestOptions& options) {
  for (const int64_t n : kProductSides) OB_RETURN_IF_ERROR(TestProduct(engine, n, options));
  return TestMemory(engine, options);
}

}  // namespace outboard::worker
