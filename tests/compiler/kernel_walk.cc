#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/reference/alu.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

using reference::LaneBlock;

class Walker {
 public:
  Walker(const UOp* sink, Buffers& buffers) : sink_(sink), buffers_(buffers) {}

  absl::Status Run() {
    std::vector<const UOp*> ranges;  // sequences inside, as their ids say
    for (const UOp* node : PostOrder(sink_))
      if (node->op == Op::kRange && !IsRange(node, RangeKind::kReduce)) ranges.push_back(node);
    std::sort(ranges.begin(), ranges.end(), HasSmallerId);
    Loop(ranges, 0, [&] {
      std::vector<LaneBlock> values;
      for (const UOp* store : sink_->src) values.push_back(Eval(store->src[1]));
      for (size_t i = 0; i < values.size(); ++i) {
        const UOp* const index = sink_->src[i]->src[0];
        if (sink_->src[i]->src.size() == 3 && Int(sink_->src[i]->src[2]) == 0) continue;
        char* const at = At(index);
        if (at == nullptr) continue;
        IsFloat(index->dtype) ? StoreFloat(index->dtype, values[i].f[0], at)
                              : StoreInt(index->dtype, values[i].i[0], at);
      }
    });
    return status_;
  }

 private:
  template <typename Body>
  void Loop(const std::vector<const UOp*>& ranges, size_t level, const Body& body) {
    if (level == ranges.size()) return body();
    // A reduction inside may have the same range: the terms of a softmax need the sum of all.
    const auto outer = counters_.find(ranges[level]);
    const int64_t before = outer == counters_.end() ? -1 : outer->second;
    for (int64_t i = 0; i < RangeOf(ranges[level]).extent(); ++i) {
      counters_[ranges[level]] = i;
      Loop(ranges, level + 1, body);
    }
    if (before >= 0) counters_[ranges[level]] = before;
  }

  char* At(const UOp* index) {
    const GlobalOf global(index->src[0]);
    const int64_t element = Int(index->src[1]);
    if (element < 0 || element >= global.elements()) {
      status_ = absl::OutOfRangeError(absl::StrCat("slot ", global.slot(), " element ", element));
      return nullptr;
    }
    return buffers_[global.slot()].data() + element * ByteWidth(index->dtype);
  }

  static LaneBlock OfInt(int64_t value) { return {{}, {value}}; }

  // An integer's or a bool's value; what indices and their conditions are mostly made of without
  // the reference's vectors, which would be nearly all of the time.
  int64_t Int(const UOp* node) {
    const bool index = !node->src.empty() && node->src[0]->dtype == DType::kI64;
    switch (node->op) {
      case Op::kConst: return node->int_value();
      case Op::kRange: return counters_.at(node);
      case Op::kVar: return VarOf(node).max();  // the largest is as good as any
      case Op::kAdd:
      case Op::kMul:
        if (index) {
          const auto a = static_cast<uint64_t>(Int(node->src[0])),
                     b = static_cast<uint64_t>(Int(node->src[1]));
          return static_cast<int64_t>(node->op == Op::kAdd ? a + b : a * b);
        }
        break;
      case Op::kCmpLt:
        if (index) return Int(node->src[0]) < Int(node->src[1]);
        break;
      case Op::kAnd:
        if (IsBool(node->dtype)) return Int(node->src[0]) & Int(node->src[1]);
        break;
      default: break;
    }
    return Eval(node).i[0];
  }

  LaneBlock Eval(const UOp* node) {
    const auto source = [&](int i) { return Eval(node->src[i]); };
    LaneBlock out;
    switch (node->op) {
      case Op::kConst:
        if (IsFloat(node->dtype)) return {{node->float_value()}, {}};
        return OfInt(node->int_value());
      case Op::kRange: return OfInt(counters_.at(node));
      case Op::kVar: return OfInt(VarOf(node).max());
      case Op::kLoad: {
        if (node->src.size() == 3 && Int(node->src[1]) == 0) return source(2);
        const char* const at = At(node->src[0]);
        if (IsFloat(node->dtype)) return {{at ? LoadFloat(node->dtype, at) : 0}, {}};
        return OfInt(at ? LoadInt(node->dtype, at) : 0);
      }
      case Op::kWhere: return Int(node->src[0]) ? source(1) : source(2);
      case Op::kCast:
        reference::CastTile(node->src[0]->dtype, node->dtype, source(0), out);
        return out;
      case Op::kBitcast:
        reference::BitcastTile(node->src[0]->dtype, node->dtype, source(0), out);
        return out;
      case Op::kMulAcc:
        if (IsFloat(node->dtype)) {
          const double exact = std::fma(source(0).f[0], source(1).f[0], source(2).f[0]);
          return {{RoundTo(node->dtype, exact)}, {}};
        }
        return OfInt(
            WrapTo(node->dtype,
                   static_cast<int64_t>(static_cast<uint64_t>(source(0).i[0]) * source(1).i[0] +
                                        source(2).i[0])));
      case Op::kReduceLoop: return Fold(node);
      default: break;
    }
    out.Resize(node->dtype, 1);
    reference::AluTile(node->op, node->src[0]->dtype, source(0),
                       node->src.size() > 1 ? source(1) : LaneBlock(), out);
    return out;
  }

  LaneBlock Fold(const UOp* node) {
    const Op op = ReduceOf(node).op();
    const std::vector<const UOp*> ranges(node->src.begin() + 1, node->src.end());
    if (IsFloat(node->dtype)) {
      double total = op == Op::kMax ? -INFINITY : op == Op::kMul;
      Loop(ranges, 0, [&] {
        const double value = Eval(node->src[0]).f[0];
        total = op == Op::kMax   ? reference::MaxFloat(total, value)
                : op == Op::kMul ? total * value
                                 : total + value;
      });
      return {{RoundTo(node->dtype, total)}, {}};
    }
    int64_t total = op == Op::kMax ? IntMin(node->dtype) : op == Op::kMul;
    Loop(ranges, 0, [&] {
      const auto value = static_cast<uint64_t>(Eval(node->src[0]).i[0]),
                 before = static_cast<uint64_t>(total);
      total = op == Op::kMax
                  ? reference::MaxInt(node->dtype, total, static_cast<int64_t>(value))
                  : WrapTo(node->dtype,
                           static_cast<int64_t>(op == Op::kMul ? before * value : before + value));
    });
    return OfInt(total);
  }

  const UOp* sink_;
  Buffers& buffers_;
  absl::flat_hash_map<const UOp*, int64_t> counters_;
  absl::Status status_;
};

}  // namespace

absl::Status WalkKernel(const UOp* sink, Buffers& buffers) { return Walker(sink, buffers).Run(); }

}  // namespace outboard::test
