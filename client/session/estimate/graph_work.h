// What one Run of a graph does, counted from the graph alone: the kernels that it would become, and
// for each of them arithmetic and bytes.
//
// A kernel is a value that is stored: a result, a sum that is no gather, a copy. Everything else is
// computed where it is read. The scheduler of a worker decides better, and knows the device; this
// is for estimates alone, and a wrong count costs no value. Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/binding.h"
#include "compiler/ir/uop.h"

namespace outboard::session {

// What the products of a kernel are of, where matrix units may compute them: devices that have some
// multiply narrow floats faster. Anything else is kF32. From the slowest to the fastest; the values
// are those of a record's text.
enum class ProductKind : uint8_t {
  kF32 = 0,
  kThreeTf32 = 1,  // of f32, each by three products of TF32
  kTf32 = 2,       // of f32, rounded
  kHalf = 3,       // bf16 or f16
  kF8 = 4,         // 8-bit floats
};
inline constexpr int kProductKinds = 5;

struct KernelWork {
  double products = 0;  // multiplications and additions of sums of products of floats
  double others = 0;    // other arithmetic; one that is no single instruction counts as several
  double bytes = 0;     // read and written, each buffer once
  double count = 1;     // such kernels
  ProductKind kind = ProductKind::kF32;
  friend bool operator==(const KernelWork&, const KernelWork&) = default;
};

struct GraphWork {
  std::vector<KernelWork> kernels;
  double products() const;
  double others() const;
  double bytes() const;
  double count() const;
};

// `sink`: of Level::kTensor. A VAR has the value of its binding, or the middle of its range.
GraphWork WorkOf(const UOp* sink, absl::Span<const Binding> bindings = {});

// The same of an encoded graph. Errors: those of DecodeGraph
absl::StatusOr<GraphWork> WorkOfEncoding(std::string_view encoding,
                                         absl::Span<const Binding> bindings = {});

// The lengths of a value's dimensions under these bindings.
std::vector<int64_t> DimsOf(const UOp* value, absl::Span<const Binding> bindings);

}  // namespace outboard::session
