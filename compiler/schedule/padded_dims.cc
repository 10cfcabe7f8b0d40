#include "compiler/schedule/padded_dims.h"

#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"

namespace outboard::schedule {
namespace {

// `length_of`: of the i-th dimension; the first one's does not matter.
template <typename LengthOf>
const UOp* RowMajor(Graph& graph, const std::vector<const UOp*>& index, const LengthOf& length_of) {
  const UOp* flat = nullptr;
  for (size_t i = 0; i < index.size(); ++i) {
    if (flat != nullptr) flat = Mul(graph, flat, length_of(i));
    flat = flat == nullptr ? index[i] : Add(graph, flat, index[i]);
  }
  return flat == nullptr ? ConstIndex(graph, 0) : Simplify(graph, flat);
}

}  // namespace

int64_t PaddedSize(ShapeView shape) {
  int64_t room = 1;
  for (const Dim& dim : shape) room *= PaddedSize(dim);
  return room;
}

const UOp* ValueOf(Graph& graph, const Dim& dim) {
  return dim.is_const() ? ConstIndex(graph, dim.value()) : Simplify(graph, dim.expression());
}

const UOp* RangeOver(Graph& graph, int64_t id, const Dim& dim, RangeKind kind) {
  std::vector<const UOp*> end;
  if (!dim.is_const()) end.push_back(ValueOf(graph, dim));
  return graph.MakeChecked(Op::kRange, DType::kI64, end,
                           {id, PaddedSize(dim), static_cast<int64_t>(kind)});
}

const UOp* NumberOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims) {
  return RowMajor(graph, index, [&](size_t i) { return ValueOf(graph, dims[i]); });
}

const UOp* OffsetOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims) {
  return RowMajor(graph, index,
                  [&](size_t i) { return ConstIndex(graph, PaddedSize(dims[i])); });
}

int LastLongDim(ShapeView dims) {
  int last = static_cast<int>(dims.size()) - 1;
  while (last >= 0 && dims[last] == Dim(1)) --last;
  return last;
}

int64_t ElementsInMemory(const UOp* value, const RowPitches& pitches) {
  const int64_t elements = PaddedSize(value->shape);
  const auto pitch = pitches.find(value);
  return pitch == pitches.end() ? elements
                                : elements / PaddedSize(value->shape[LastLongDim(value->shape)]) *
                                      pitch->second;
}

const UOp* OffsetInMemory(Graph& graph, const std::vector<const UOp*>& index, const UOp* value,
                          const RowPitches& pitches) {
  const auto pitch = pitches.find(value);
  if (pitch == pitches.end()) return OffsetOf(graph, index, value->shape);
  const int last = LastLongDim(value->shape);
  return RowMajor(graph, index, [&](size_t i) {
    return ConstIndex(graph, static_cast<int>(i) == last ? pitch->second
                                                         : PaddedSize(value->shape[i]));
  });
}

}  // namespace outboard::schedule
