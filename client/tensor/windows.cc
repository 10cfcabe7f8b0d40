#include "client/tensor/windows.h"

namespace outboard::internal {
namespace {

// sum over `axis` of (hot ? x : 0), without the axis.
const UOp* OneHotSum(const Recorder& rec, const UOp* hot, const UOp* x, int axis) {
  return rec.Squeeze(rec.Reduce(Op::kAdd, rec.Where(hot, x, rec.FullLike(x, 0)), {axis}), {axis});
}

// Wide enough for the index, and for comparing it with a place.
DType PlaceType(const UOp* index) {
  return ByteWidth(index->dtype) == 8 || index->dtype == DType::kU32 ? DType::kI64 : DType::kI32;
}

}  // namespace

const UOp* Windows(const Recorder& rec, const UOp* x, int axis, int64_t places, int64_t kernel,
                   int64_t stride, int64_t dilation) {
  // Windows that neither overlap nor leave gaps are a reshape.
  if (stride == kernel && dilation == 1) {
    Shape begin_end, dims(x->shape.begin(), x->shape.end());
    for (const Dim& dim : dims) begin_end.insert(begin_end.end(), {Dim(0), dim});
    begin_end[2 * axis + 1] = Dim(places * kernel);
    dims[axis] = Dim(kernel);
    dims.insert(dims.begin() + axis, Dim(places));
    return rec.Reshape(rec.Shrink(x, begin_end), dims);
  }
  Shape full(x->shape.begin(), x->shape.end());
  full.insert(full.begin() + axis, {Dim(places), Dim(kernel)});  // [..., o, k, i, ...]
  Shape apart(x->shape.begin(), x->shape.end());
  apart.insert(apart.begin() + axis, {Dim(1), Dim(1)});
  const auto times = [&](const UOp* iota, int64_t factor) {
    return factor == 1 ? iota : rec.Scale(iota, static_cast<double>(factor));
  };
  const UOp* const position = rec.Add(times(rec.IotaAlong(DType::kI32, full, axis), stride),
                                      times(rec.IotaAlong(DType::kI32, full, axis + 1), dilation));
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(DType::kI32, full, axis + 2), position);
  return OneHotSum(rec, hot, rec.Expand(rec.Reshape(x, apart), full), axis + 2);
}

const UOp* GatherAlong(const Recorder& rec, const UOp* x, int axis, const UOp* index) {
  if (IsBool(x->dtype))
    return rec.Cast(GatherAlong(rec, rec.Cast(x, DType::kU8), axis, index), DType::kBool);
  const DType type = PlaceType(index);
  const int rank = x->rank();
  // x without what no index reaches, its axis turned to the end: [i, j ..., n].
  Shape begin_end, apart(index->shape.begin(), index->shape.end());
  std::vector<int64_t> order;
  for (int i = 0; i < rank; ++i) {
    begin_end.insert(begin_end.end(), {Dim(0), i == axis ? x->shape[i] : index->shape[i]});
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  apart[axis] = Dim(1);
  apart.push_back(x->shape[axis]);
  Shape full(index->shape.begin(), index->shape.end()), ones = full;
  full.push_back(x->shape[axis]);
  ones.emplace_back(1);
  const UOp* const turned = rec.Reshape(rec.Permute(rec.Shrink(x, begin_end), order), apart);
  const UOp* const wanted = rec.Expand(rec.Reshape(rec.Cast(index, type), ones), full);
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, full, rank), wanted);
  return OneHotSum(rec, hot, rec.Expand(turned, full), rank);
}

const UOp* Gather(const Recorder& rec, const UOp* x, int axis, const UOp* index) {
  // bool has no sum.
  if (IsBool(x->dtype))
    return rec.Cast(Gather(rec, rec.Cast(x, DType::kU8), axis, index), DType::kBool);
  const DType type = PlaceType(index);
  const int rank = index->rank();
  // [before..., index..., i, after...]
  Shape full(x->shape.begin(), x->shape.begin() + axis);
  full.insert(full.end(), index->shape.begin(), index->shape.end());
  full.insert(full.end(), x->shape.begin() + axis, x->shape.end());
  Shape of_index(full.size(), Dim(1)), of_x = full;
  for (int i = 0; i < rank; ++i) {
    of_index[axis + i] = index->shape[i];
    of_x[axis + i] = Dim(1);
  }
  const UOp* const wanted = rec.Expand(rec.Reshape(rec.Cast(index, type), of_index), full);
  const UOp* const hot = rec.Alu(Op::kCmpEq, rec.IotaAlong(type, full, axis + rank), wanted);
  return OneHotSum(rec, hot, rec.Expand(rec.Reshape(x, of_x), full), axis + rank);
}

}  // namespace outboard::internal
