#include "compiler/reference/value.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/reference/limits.h"
#include "compiler/reference/position_map.h"

namespace outboard::reference {
namespace {

using reference_limits::kTile;

void PullHost(const HostTensor& host, std::span<const int64_t> positions, LaneBlock& out) {
  const char* const bytes = host.bytes.data();
  const int width = ByteWidth(host.dtype);
  for (size_t k = 0; k < positions.size(); ++k) {
    if (IsFloat(host.dtype)) {
      out.f[k] = LoadFloat(host.dtype, bytes + positions[k] * width);
    } else {
      out.i[k] = LoadInt(host.dtype, bytes + positions[k] * width);
    }
  }
}

void PullKept(const RetainedValue& kept, std::span<const int64_t> positions, LaneBlock& out) {
  const LaneBlock& from = kept.elements;
  for (size_t k = 0; k < out.f.size(); ++k) out.f[k] = from.f[positions[k]];
  for (size_t k = 0; k < out.i.size(); ++k) out.i[k] = from.i[positions[k]];
}

PositionMap MapOf(const Value& value) {
  const std::vector<int64_t>& from = value.sources[0]->dims;
  const std::vector<int64_t> natural = StridesOf(from);
  std::vector<int64_t> strides = natural;
  int64_t base = 0;
  switch (value.node->op) {
    case Op::kExpand:
      for (size_t i = 0; i < from.size(); ++i)
        if (from[i] == 1) strides[i] = 0;
      break;
    case Op::kPermute:
      for (size_t i = 0; i < from.size(); ++i) strides[i] = natural[PermuteOf(value.node).axis(i)];
      break;
    case Op::kFlip:
      for (const int64_t axis : FlipOf(value.node).axes()) {
        base += (from[axis] - 1) * natural[axis];
        strides[axis] = -natural[axis];
      }
      break;
    case Op::kShrink:
      for (size_t i = 0; i < from.size(); ++i) base += value.numbers[2 * i] * natural[i];
      break;
    default: OB_CHECK(false && "no strided view");
  }
  return PositionMap(value.dims, strides, base);
}

// Pulls from `source` at some of the places only, given as indices into `out`.
void PullSome(const Value& source, std::span<const int64_t> positions, std::span<const int> places,
              LaneBlock& out) {
  if (places.empty()) return;
  LaneBlock some;
  Pull(source, positions, some);
  for (size_t k = 0; k < places.size(); ++k) {
    if (IsFloat(source.dtype)) {
      out.f[places[k]] = some.f[k];
    } else {
      out.i[places[k]] = some.i[k];
    }
  }
}

void PullPad(const Value& value, std::span<const int64_t> positions, LaneBlock& out) {
  const PadMap map(value.sources[0]->dims, value.numbers);
  std::fill(out.f.begin(), out.f.end(), 0.0);
  std::fill(out.i.begin(), out.i.end(), 0);
  std::vector<int64_t> inside;
  std::vector<int> places;
  for (size_t k = 0; k < positions.size(); ++k) {
    const int64_t position = map(positions[k]);
    if (position < 0) continue;
    inside.push_back(position);
    places.push_back(static_cast<int>(k));
  }
  PullSome(*value.sources[0], inside, places, out);
}

// Each side is asked for its own elements only: of a one-hot product, a single one in a row.
void PullWhere(const Value& value, std::span<const int64_t> positions, LaneBlock& out) {
  LaneBlock condition;
  Pull(*value.sources[0], positions, condition);
  for (const int64_t side : {1, 0}) {
    std::vector<int64_t> chosen;
    std::vector<int> places;
    for (size_t k = 0; k < positions.size(); ++k) {
      if (condition.i[k] != side) continue;
      chosen.push_back(positions[k]);
      places.push_back(static_cast<int>(k));
    }
    PullSome(*value.sources[side ? 1 : 2], chosen, places, out);
  }
}

void PullComputed(const Value& value, std::span<const int64_t> positions, LaneBlock& out) {
  const Op op = value.node->op;
  switch (op) {
    case Op::kConst:
      std::fill(out.f.begin(), out.f.end(), IsFloat(value.dtype) ? value.node->float_value() : 0);
      std::fill(out.i.begin(), out.i.end(), IsFloat(value.dtype) ? 0 : value.node->int_value());
      return;
    case Op::kVar: std::fill(out.i.begin(), out.i.end(), value.numbers[0]); return;
    case Op::kIota: std::copy(positions.begin(), positions.end(), out.i.begin()); return;
    case Op::kReshape: return Pull(*value.sources[0], positions, out);
    case Op::kExpand:
    case Op::kPermute:
    case Op::kFlip:
    case Op::kShrink: {
      std::vector<int64_t> mapped(positions.size());
      MapOf(value).Apply(positions, mapped.data());
      return Pull(*value.sources[0], mapped, out);
    }
    case Op::kPad: return PullPad(value, positions, out);
    case Op::kWhere: return PullWhere(value, positions, out);
    default: break;
  }
  const DType from = value.sources[0]->dtype;
  LaneBlock a, b;
  Pull(*value.sources[0], positions, a);
  if (op == Op::kCast) return CastTile(from, value.dtype, a, out);
  if (op == Op::kBitcast) return BitcastTile(from, value.dtype, a, out);
  if (IsBinary(op)) Pull(*value.sources[1], positions, b);
  AluTile(op, from, a, b, out);
}

// Calls body(positions) for tiles of 0 ... count-1.
template <typename Body>
void ForTiles(int64_t count, Body body) {
  std::vector<int64_t> positions;
  for (int64_t begin = 0; begin < count; begin += kTile) {
    positions.resize(std::min(kTile, count - begin));
    std::iota(positions.begin(), positions.end(), begin);
    body(std::span<const int64_t>(positions));
  }
}

double FloatIdentity(Op op, DType dtype) {
  if (op == Op::kAdd) return 0;
  return op == Op::kMul ? 1 : RoundTo(dtype, -std::numeric_limits<double>::infinity());
}

int64_t IntIdentity(Op op, DType dtype) {
  if (op == Op::kAdd) return 0;
  return op == Op::kMul ? 1 : IntMin(dtype);
}

// In order; elements that go into one sum mostly follow each other.
template <typename T, typename F>
void FoldInto(std::span<const T> tile, std::span<const int64_t> into, std::vector<T>& sums, F add) {
  for (size_t k = 0; k < tile.size();) {
    const int64_t place = into[k];
    T sum = sums[place];
    for (; k < tile.size() && into[k] == place; ++k) sum = add(sum, tile[k]);
    sums[place] = sum;
  }
}

void Accumulate(Op op, DType dtype, const LaneBlock& tile, std::span<const int64_t> into,
                LaneBlock& sums) {
  const auto floats = [&](auto add) { FoldInto<double>(tile.f, into, sums.f, add); };
  const auto ints = [&](auto add) { FoldInto<int64_t>(tile.i, into, sums.i, add); };
  const auto wrapped = [&](auto add) {
    ints([=](int64_t a, int64_t b) {
      return WrapTo(dtype, static_cast<int64_t>(
                               add(static_cast<uint64_t>(a), static_cast<uint64_t>(b))));
    });
  };
  switch (op) {
    case Op::kAdd:
      floats([](double a, double b) { return a + b; });
      return wrapped([](uint64_t a, uint64_t b) { return a + b; });
    case Op::kMul:
      floats([](double a, double b) { return a * b; });
      return wrapped([](uint64_t a, uint64_t b) { return a * b; });
    default:
      floats([](double a, double b) { return MaxFloat(a, b); });
      return ints([=](int64_t a, int64_t b) { return MaxInt(dtype, a, b); });
  }
}

}  // namespace

absl::Status Budget::Work(const UOp* node, int64_t elements, int64_t operations_each) {
  work_ += static_cast<__int128>(elements) * operations_each + 1;
  if (work_ <= work_max_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("interpreter: ", NodeToString(node),
                                                   " goes over the limit of ", work_max_,
                                                   " element operations a run"));
}

absl::Status Budget::Take(const UOp* node, int64_t elements, int64_t bytes_each) {
  const __int128 bytes = static_cast<__int128>(elements) * bytes_each;
  if (bytes > bytes_max_ - bytes_)
    return absl::ResourceExhaustedError(absl::StrCat("interpreter: ", NodeToString(node), " of ",
                                                     elements, " elements goes over the limit of ",
                                                     bytes_max_, " bytes of values"));
  bytes_ += static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

int64_t Product(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

int64_t Value::count() const { return Product(dims); }

// Recursion is bounded by kConeNodes.
void Pull(const Value& value, std::span<const int64_t> positions, LaneBlock& out) {
  out.Resize(value.dtype, static_cast<int64_t>(positions.size()));
  if (value.kept != nullptr) {
    PullKept(*value.kept, positions, out);
  } else if (value.host != nullptr) {
    PullHost(*value.host, positions, out);
  } else {
    PullComputed(value, positions, out);
  }
}

absl::StatusOr<std::shared_ptr<RetainedValue>> MakeKept(const Value& value, Budget& budget) {
  const int64_t count = value.count();
  OB_RETURN_IF_ERROR(budget.Take(value.node, count, 8));
  auto kept = std::make_shared<RetainedValue>();
  kept->bytes = count * 8;
  kept->budget = &budget;
  kept->elements.Resize(value.dtype, count);
  return kept;
}

absl::StatusOr<std::shared_ptr<const RetainedValue>> Keep(const Value& value, Budget& budget) {
  OB_RETURN_IF_ERROR(budget.Work(value.node, value.count(), value.cone));
  OB_ASSIGN_OR_RETURN(std::shared_ptr<RetainedValue> kept, MakeKept(value, budget));
  LaneBlock tile;
  ForTiles(value.count(), [&](std::span<const int64_t> positions) {
    Pull(value, positions, tile);
    std::copy(tile.f.begin(), tile.f.end(),
              kept->elements.f.begin() + (tile.f.empty() ? 0 : positions[0]));
    std::copy(tile.i.begin(), tile.i.end(),
              kept->elements.i.begin() + (tile.i.empty() ? 0 : positions[0]));
  });
  return kept;
}

absl::StatusOr<std::shared_ptr<const RetainedValue>> KeepReduce(const Value& value,
                                                                Budget& budget) {
  const Value& source = *value.sources[0];
  const auto op = ReduceOf(value.node).op();
  OB_RETURN_IF_ERROR(budget.Work(value.node, source.count(), source.cone + 1));
  OB_ASSIGN_OR_RETURN(std::shared_ptr<RetainedValue> kept, MakeKept(value, budget));
  LaneBlock& sums = kept->elements;
  if (IsFloat(value.dtype)) {
    std::fill(sums.f.begin(), sums.f.end(), FloatIdentity(op, value.dtype));
  } else {
    std::fill(sums.i.begin(), sums.i.end(), IntIdentity(op, value.dtype));
  }

  std::vector<int64_t> strides = StridesOf(value.dims);
  for (const int64_t axis : ReduceOf(value.node).axes()) strides[axis] = 0;
  const PositionMap result_of(source.dims, strides, 0);
  std::vector<int64_t> into(kTile);
  LaneBlock tile;
  ForTiles(source.count(), [&](std::span<const int64_t> positions) {
    Pull(source, positions, tile);
    result_of.Apply(positions, into.data());
    Accumulate(op, value.dtype, tile, into, sums);
  });
  for (double& sum : sums.f) sum = RoundTo(value.dtype, sum);
  return kept;
}

absl::StatusOr<HostTensor> ToHost(const Value& value, Budget& budget) {
  const int width = ByteWidth(value.dtype);
  OB_RETURN_IF_ERROR(budget.Work(value.node, value.count(), value.cone));
  OB_RETURN_IF_ERROR(budget.Take(value.node, value.count(), width));
  HostTensor host{value.dtype, value.dims, std::string(value.count() * width, '\0')};
  LaneBlock tile;
  ForTiles(value.count(), [&](std::span<const int64_t> positions) {
    Pull(value, positions, tile);
    for (size_t k = 0; k < positions.size(); ++k) {
      char* const place = host.bytes.data() + positions[k] * width;
      if (IsFloat(value.dtype)) {
        StoreFloat(value.dtype, tile.f[k], place);
      } else {
        StoreInt(value.dtype, tile.i[k], place);
      }
    }
  });
  return host;
}

}  // namespace outboard::reference
