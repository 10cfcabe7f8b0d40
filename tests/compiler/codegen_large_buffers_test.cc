// Buffers of more than 2^31 elements: every index is 64 bits wide where it can reach that far.
//
// The buffers are address space alone: their pages come into being where a kernel touches them, and
// it touches few.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/check.h"
#include "compiler/compile.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/kernel_shapes.h"

namespace outboard::test {
namespace {

constexpr int64_t kElements =
    (int64_t{1} << 32) + 4096;  // beyond what 32 bits count, signed or not

class AddressSpace {
 public:
  explicit AddressSpace(size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    OB_CHECK(memory_ != MAP_FAILED);
  }
  ~AddressSpace() { munmap(memory_, bytes_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

void RunEverywhere(const UOp* sink, std::vector<void*> buffers) {
  for (const CompileOptions& options :
       {CompileOptions{}, CompileOptions{.cpu = "haswell"}, CompileOptions{.no_opt = true}}) {
    const auto loaded = ValueOrDie(LoadedKernel::Load(ValueOrDie(CompileKernel(sink, options))));
    loaded->Run(buffers.data(), 0, loaded->kernel().tasks);
  }
}

// A window at the end of the buffer, at a distance that only 64 bits hold.
TEST(CodegenLargeBuffers, ConstantDistance) {
  const AddressSpace large(kElements);
  constexpr int64_t kCount = 100, kFirst = kElements - kCount;
  Graph g;
  const UOp* const i = Range(g, 0, kCount);
  const UOp* const x = LoadAt(g, 1, DType::kU8, kElements, Add(g, i, ConstIndex(g, kFirst)));
  std::vector<uint8_t> out(kCount);
  for (int64_t k = 0; k < kCount; ++k) large.data()[kFirst + k] = static_cast<uint8_t>(k + 1);
  RunEverywhere(Sink(g, {StoreAt(g, 0, kCount, i, x)}), {out.data(), large.data()});
  for (int64_t k = 0; k < kCount; ++k) EXPECT_EQ(out[k], k + 1);
}

// Rows that are far apart, forwards and backwards: the products of index and stride are what
// overflows.
TEST(CodegenLargeBuffers, LongStrides) {
  const AddressSpace large(kElements);
  constexpr int64_t kRows = 33, kColumns = 20, kStride = int64_t{1} << 27;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c)
      large.data()[r * kStride + c] = static_cast<uint8_t>(r * 7 + c);
  for (const bool rows_inside : {false, true})
    for (const bool backwards : {false, true}) {
      Graph g;
      const UOp* const r = Range(g, rows_inside ? 1 : 0, kRows);
      const UOp* const c = Range(g, rows_inside ? 0 : 1, kColumns);
      const UOp* const row =
          backwards ? Add(g, ConstIndex(g, kRows - 1), Mul(g, r, ConstIndex(g, -1))) : r;
      const UOp* const index = Add(g, Mul(g, row, ConstIndex(g, kStride)), c);
      std::vector<uint8_t> out(kRows * kColumns);
      RunEverywhere(Sink(g, {StoreAt(g, 0, kRows * kColumns, RowMajor(g, {r, c}, {kRows, kColumns}),
                                     LoadAt(g, 1, DType::kU8, kElements, index))}),
                    {out.data(), large.data()});
      for (int64_t k = 0; k < kRows; ++k)
        for (int64_t j = 0; j < kColumns; ++j)
          EXPECT_EQ(out[k * kColumns + j],
                    static_cast<uint8_t>((backwards ? kRows - 1 - k : k) * 7 + j));
    }
}

// Places that data names: gathers may not cut an index to 32 bits.
TEST(CodegenLargeBuffers, PlacesFromData) {
  const AddressSpace large(kElements);
  const std::vector<int64_t> places = {kElements - 1,          (int64_t{1} << 31) - 1,
                                       int64_t{1} << 31,       (int64_t{1} << 32) - 1,
                                       (int64_t{1} << 32) + 1, 5};
  const auto count = static_cast<int64_t>(places.size());
  for (int64_t k = 0; k < count; ++k) large.data()[places[k]] = static_cast<uint8_t>(k + 1);
  Graph g;
  const UOp* const i = Range(g, 0, count);
  const UOp* const place = LoadAt(g, 2, DType::kI64, count, i);
  const UOp* const x = GatedLoadAt(g, 1, DType::kU8, kElements, place, Within(g, place, kElements),
                                   ConstOf(g, DType::kU8, 0));
  std::vector<uint8_t> out(count);
  RunEverywhere(Sink(g, {StoreAt(g, 0, count, i, x)}),
                {out.data(), large.data(), const_cast<int64_t*>(places.data())});
  for (int64_t k = 0; k < count; ++k) EXPECT_EQ(out[k], k + 1);
}

// Writing far away, and a value of an index that no 32 bits hold.
TEST(CodegenLargeBuffers, StoresAndPositions) {
  const AddressSpace large(kElements);
  constexpr int64_t kCount = 65, kStride = (int64_t{1} << 26) + 31;
  static_assert((kCount - 1) * kStride < kElements && (kCount - 1) * kStride > int64_t{1} << 32);
  Graph g;
  const UOp* const i = Range(g, 0, kCount);
  const UOp* const index = Mul(g, i, ConstIndex(g, kStride));
  const UOp* const low = Cast(g, Alu(g, Op::kShr, index, ConstIndex(g, 20)), DType::kU8);
  std::vector<int64_t> positions(kCount);
  RunEverywhere(Sink(g, {StoreAt(g, 0, kElements, index, low), StoreAt(g, 1, kCount, i, index)}),
                {large.data(), positions.data()});
  for (int64_t k = 0; k < kCount; ++k) {
    EXPECT_EQ(positions[k], k * kStride);
    EXPECT_EQ(large.data()[k * kStride], static_cast<uint8_t>(k * kStride >> 20));
  }
}

}  // namespace
}  // namespace outboard::test
