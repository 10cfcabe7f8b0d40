#include "compiler/schedule/padded_dims.h"

#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"

namespace outboard::schedule {
namespace {

template <typename LengthOf>
const UOp* RowMajor(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims,
                    const LengthOf& length_of) {
  const UOp* flat = nullptr;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (flat != nullptr) flat = Mul(graph, flat, length_of(dims[i]));
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
  return RowMajor(graph, index, dims, [&](const Dim& dim) { return ValueOf(graph, dim); });
}

const UOp* OffsetOf(Graph& graph, const std::vector<const UOp*>& index, ShapeView dims) {
  return RowMajor(graph, index, dims,
                  [&](const Dim& dim) { return ConstIndex(graph, PaddedSize(dim)); });
}

}  // namespace outboard::schedule
