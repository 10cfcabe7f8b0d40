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

// Small integers: their products and sums are exact in float32, in any order. Rows of the left
// matrix repeat after kLeftRows, columns of the right one after kRightColumns, so that what is
// expected is known from so few elements of the product.
constexpr int64_t kLeftRows = 7, kRightColumns = 5;
float Left(int64_t i, int64_t k) { return static_cast<float>((i * 3 + k * 5) % kLeftRows - 3); }
float Right(int64_t k, int64_t j) {
  return static_cast<float>((k * 2 + j * 11) % kRightColumns - 2);
}

// One size that fills tiles, and one that leaves edges.
constexpr int64_t kProductSides[] = {256, 131};
constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr size_t kPieceWords = kPieceBytes / sizeof(uint64_t);

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

// Each element by its own sum for the first rows and columns, and those again for all others.
std::vector<float> ExpectedProduct(int64_t n) {
  float first[kLeftRows][kRightColumns] = {};
  for (int64_t i = 0; i < kLeftRows; ++i)
    for (int64_t j = 0; j < kRightColumns; ++j)
      for (int64_t k = 0; k < n; ++k) first[i][j] += Left(i, k) * Right(k, j);
  std::vector<float> expected;
  expected.reserve(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) expected.push_back(first[i % kLeftRows][j % kRightColumns]);
  return expected;
}

absl::Status TestProduct(Engine& engine, int64_t n, const JoinTestOptions& options) {
  std::vector<float> left, right;
  const std::vector<float> expected = ExpectedProduct(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k) {
      left.push_back(Left(i, k));
      right.push_back(Right(i, k));
    }
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
                      engine.Execute(encoded.id, sink, inputs, {}));
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

// Writes what belongs at the words that begin with `first`. It differs from word to word and from
// piece to piece, so that what is read is of this place. A loop of additions and shifts, of several
// words at once: on a machine that has just started, these are most of the instructions.
void WritePattern(uint64_t first, uint64_t* words) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // odd: no two words are the same
  uint64_t next = (first + 1) * kStep;
  for (size_t i = 0; i < kPieceWords; ++i) {
    words[i] = next ^ (next >> 31);
    next += kStep;
  }
}

}  // namespace

absl::Status TestProducts(Engine& engine, const JoinTestOptions& options) {
  for (const int64_t n : kProductSides) OB_RETURN_IF_ERROR(TestProduct(engine, n, options));
  return absl::OkStatus();
}

// All pieces are written before the first is read: none lies where another one does.
absl::Status TestMemory(Engine& engine, const JoinTestOptions& options) {
  std::vector<runtime::DeviceBuffer> pieces;
  const auto expected = std::make_unique_for_overwrite<uint64_t[]>(kPieceWords);
  const auto found = std::make_unique_for_overwrite<uint64_t[]>(kPieceWords);
  const auto count =
      std::max<uint64_t>(1, static_cast<uint64_t>(options.memory_bytes / kPieceBytes));
  for (uint64_t piece = 0; piece < count; ++piece) {
    auto memory = engine.NewBuffer(kPieceBytes);
    // A device with less than that is tested as far as it goes.
    if (absl::IsResourceExhausted(memory.status()) && piece > 0) break;
    if (!memory.ok()) return memory.status();
    WritePattern(piece * kPieceWords, expected.get());
    OB_RETURN_IF_ERROR(engine.device().Upload(
        memory->address(), {reinterpret_cast<const char*>(expected.get()), kPieceBytes}));
    pieces.push_back(*std::move(memory));
  }
  for (uint64_t piece = 0; piece < pieces.size(); ++piece) {
    WritePattern(piece * kPieceWords, expected.get());
    OB_RETURN_IF_ERROR(
        engine.device().Download(pieces[piece].address(), kPieceBytes, found.get()));
    options.planted(std::as_writable_bytes(std::span(found.get(), kPieceWords)));
    if (std::memcmp(found.get(), expected.get(), kPieceBytes) == 0) continue;
    const auto wrong = std::mismatch(found.get(), found.get() + kPieceWords, expected.get());
    const auto at = static_cast<uint64_t>(wrong.first - found.get());
    return absl::FailedPreconditionError(
        absl::StrCat("the memory: word ", piece * kPieceWords + at, " is 0x",
                     absl::Hex(*wrong.first), ", expected 0x", absl::Hex(*wrong.second)));
  }
  return absl::OkStatus();
}

absl::Status TestDevice(Engine& engine, const JoinTestOptions& options) {
  OB_RETURN_IF_ERROR(TestProducts(engine, options));
  return TestMemory(engine, options);
}

}  // namespace outboard::worker
