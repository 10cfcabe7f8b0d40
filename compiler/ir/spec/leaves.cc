#include "compiler/ir/spec/node_rules.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "compiler/ir/limits.h"

namespace outboard::spec {

Result CheckLeaf(const Node& n) {
  switch (n.op) {
    case Op::kParam:
    case Op::kBuffer: {
      if (n.arg.empty()) return Broken(n.op, "needs a slot");
      if (n.dtype == DType::kVoid) return Broken(n.op, "needs an element type");
      if (n.op == Op::kParam && (n.arg[0] < 0 || n.arg[0] >= limits::kParamSlotMax))
        return Broken(n.op, "slot ", n.arg[0], " is not in 0..", limits::kParamSlotMax - 1);
      OB_ASSIGN_OR_RETURN(Shape shape, ReadDims(n.op, n.arg, 1, n.extra));
      OB_RETURN_IF_ERROR(CheckShape(n.op, shape));
      __int128 bytes = ByteWidth(n.dtype);
      for (const Dim& dim : shape) bytes *= dim.max();
      if (bytes > limits::kStoredBytesMax)
        return Broken(n.op, "the shape ", Str(shape), " of ", Str(n.dtype),
                      " is over the limit of ", limits::kStoredBytesMax, " stored bytes");
      return Inferred{n.dtype, std::move(shape)};
    }
    case Op::kConst: {
      if (n.arg.size() != 1) return Broken(n.op, "needs one value");
      if (n.dtype == DType::kVoid) return Broken(n.op, "needs a type");
      if (IsFloat(n.dtype)) {
        const double value = std::bit_cast<double>(n.arg[0]);
        if (std::bit_cast<int64_t>(RoundTo(n.dtype, value)) != n.arg[0])
          return Broken(n.op, "the value is not one of ", Str(n.dtype),
                        " or is not the canonical NaN");
      } else if (n.dtype != DType::kU64 &&
                 (n.arg[0] < IntMin(n.dtype) || n.arg[0] > IntMax(n.dtype))) {
        return Broken(n.op, n.arg[0], " is out of range for ", Str(n.dtype));
      }
      return Typed(n.dtype, {});
    }
    case Op::kVar:
      if (n.arg.size() != 3) return Broken(n.op, "needs slot, min and max");
      if (n.arg[0] < 0 || n.arg[0] > limits::kRankSlot)
        return Broken(n.op, "slot ", n.arg[0], " is not in 0..", limits::kVarSlotMax - 1);
      if (n.arg[0] == limits::kRankSlot &&
          (n.arg[1] != 0 || n.arg[2] < 0 || n.arg[2] >= limits::kRanksMax))
        return Broken(n.op, "slot ", n.arg[0], " is the rank, whose range is 0 to at most ",
                      limits::kRanksMax - 1, ", not ", n.arg[1], "..", n.arg[2]);
      if (n.arg[1] > n.arg[2] || n.arg[1] < -limits::kDimMax || n.arg[2] > limits::kDimMax)
        return Broken(n.op, "the range ", n.arg[1], "..", n.arg[2], " is empty or too wide");
      if (n.dtype != DType::kVoid && n.dtype != DType::kI64) return Broken(n.op, "is of i64");
      return Typed(DType::kI64, {});
    case Op::kIota: {
      if (n.arg.size() != 1) return Broken(n.op, "needs one length");
      if (!IsInt(n.dtype)) return Broken(n.op, "needs an integer type, not ", Str(n.dtype));
      OB_ASSIGN_OR_RETURN(Shape shape, ReadDims(n.op, n.arg, 0, n.extra));
      OB_RETURN_IF_ERROR(CheckShape(n.op, shape));
      if (shape[0].max() - 1 > IntMax(n.dtype))
        return Broken(n.op, "a length of ", shape[0].max(), " does not fit ", Str(n.dtype));
      return Inferred{n.dtype, std::move(shape)};
    }
    case Op::kGlobal:
      if (n.arg.size() != 2 || n.arg[0] < 0 || n.arg[1] < 0)
        return Broken(n.op, "needs slot and elements");
      if (n.dtype == DType::kVoid) return Broken(n.op, "needs an element type");
      return Typed(n.dtype, {});
    default:  // kRange
      if (n.arg.size() != 3) return Broken(n.op, "needs id, extent and kind");
      if (n.arg[1] < 0 || n.arg[1] > limits::kVirtualElementsMax)
        return Broken(n.op, "extent ", n.arg[1]);
      if (n.arg[2] < 0 || n.arg[2] > 2) return Broken(n.op, "kind ", n.arg[2]);
      if (!n.src.empty() && (n.src[0]->dtype != DType::kI64 || !n.src[0]->of_vars))
        return Broken(n.op, "the end must be an i64 scalar of VARs");
      return Typed(DType::kI64, {});
  }
}

}  // namespace outboard::spec
