#include "tests/compiler/random_graph.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/compiler/error_bounds.h"
#include "tests/compiler/random_values.h"

namespace outboard::test {
namespace {

constexpr int64_t kElementsMax = 300;  // of an ordinary node
constexpr int64_t kOneHotMax = 3000;   // of the product inside a gather or window
constexpr int kRankMax = 5;
constexpr int kFunctionDepthMax = 2;

const DType kTypes[] = {DType::kBool,   DType::kI8,  DType::kU8,   DType::kI16, DType::kU16,
                        DType::kI32,    DType::kU32, DType::kI64,  DType::kU64, DType::kF8E4M3,
                        DType::kF8E5M2, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

// What a whole case has once.
struct World {
  Graph graph;
  Random random;
  std::vector<const UOp*> vars;
  std::vector<Binding> bindings;
  std::map<uint64_t, HostTensor> tensors;  // of BUFFERs

  explicit World(uint64_t seed) : random(seed) {}
};

int64_t CountMax(ShapeView shape) {
  int64_t count = 1;
  for (const Dim& dim : shape) count *= std::max<int64_t>(dim.max(), 1);
  return count;
}

// Grows a graph, or the body of a FUNCTION, node by node. `pool_` is what nodes are made of.
class Builder {
 public:
  Builder(World& world, int depth) : w_(world), g_(world.graph), r_(world.random), depth_(depth) {}

  void AddInput(const UOp* node, const ErrorInfo& info) {
    table_.Set(node, info);
    pool_.push_back(node);
  }

  void Grow(int steps) {
    for (int i = 0; i < steps; ++i) Step();
  }

  std::vector<const UOp*> Results(int count) {
    std::vector<const UOp*> results;
    for (int i = 0; i < count; ++i) {
      // The later half, mostly: otherwise most of the graph would not be needed.
      const auto size = static_cast<int64_t>(pool_.size());
      results.push_back(pool_[r_.OneIn(6) ? r_.Below(size) : size - 1 - r_.Below((size + 1) / 2)]);
    }
    return results;
  }

  void AddTensor() {
    const DType dtype = kTypes[r_.Below(std::size(kTypes))];
    const Shape shape = RandomShape();
    HostTensor tensor{dtype, {}, ""};
    for (const Dim& dim : shape) tensor.dims.push_back(dim.is_const() ? dim.value() : Bound(dim));
    tensor.bytes.resize(tensor.ElementCount() * ByteWidth(dtype));
    const auto kind = static_cast<int>(r_.Below(3));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      char* const place = tensor.bytes.data() + i * ByteWidth(dtype);
      if (IsFloat(dtype)) {
        StoreFloat(dtype, RandomFloat(r_, dtype, kind), place);
      } else {
        StoreInt(dtype, RandomInt(r_, dtype, kind), place);
      }
    }
    const uint64_t handle = 1000 + w_.tensors.size();
    const ErrorInfo info = InfoOfTensor(tensor);
    w_.tensors[handle] = std::move(tensor);
    AddInput(BufferNode(g_, handle, dtype, shape), info);
  }

 private:
  // ---- choosing ----

  int64_t Bound(const Dim& dim) {
    for (size_t i = 0; i < w_.vars.size(); ++i)
      if (dim.expression() == w_.vars[i]) return w_.bindings[i].value;
    OB_CHECK(false && "only VARs are dimensions of inputs");
  }

  Dim RandomDim() {
    if (r_.OneIn(40)) return Dim(0);
    if (!w_.vars.empty() && r_.OneIn(6)) return Dim(r_.Of(w_.vars));
    if (r_.OneIn(10))
      return Dim(
          std::vector<int64_t>{8, 16, 17, 20, 33}[r_.Below(5)]);  // vectors and their remainders
    return Dim(std::vector<int64_t>{1, 1, 2, 3, 3, 4, 5, 7}[r_.Below(8)]);
  }

  Shape RandomShape() {
    // Few shapes a graph, so that nodes meet.
    if (!pool_.empty() && !r_.OneIn(3)) {
      const UOp* const like = r_.Of(pool_);
      const Shape shape(like->shape.begin(), like->shape.end());
      bool plain = true;
      for (const Dim& dim : shape)
        plain = plain &&
                (dim.is_const() || std::count(w_.vars.begin(), w_.vars.end(), dim.expression()));
      if (plain) return shape;
    }
    Shape shape;
    for (int64_t rank = r_.Below(4); rank > 0; --rank) shape.push_back(RandomDim());
    while (CountMax(shape) > kElementsMax) shape.pop_back();
    return shape;
  }

  // A node that `good` accepts; nullptr after a few tries.
  template <typename Good>
  const UOp* Pick(Good good) {
    for (int i = 0; i < 12; ++i) {
      // Young nodes oftener, so that chains grow deep.
      const auto size = static_cast<int64_t>(pool_.size());
      const UOp* const node =
          pool_[r_.OneIn(2) ? r_.Below(size) : size - 1 - r_.Below(std::min<int64_t>(size, 4))];
      if (good(node)) return node;
    }
    return nullptr;
  }
  const UOp* Any() {
    return Pick([](const UOp*) { return true; });
  }
  const UOp* AnyFloat() {
    return Pick([](const UOp* n) { return IsFloat(n->dtype); });
  }
  const UOp* AnyInt() {
    return Pick([](const UOp* n) { return IsInt(n->dtype); });
  }
  const UOp* AnyNumber() {
    return Pick([](const UOp* n) { return !IsBool(n->dtype); });
  }

  const UOp* RandomConst(DType dtype) {
    const auto kind = static_cast<int>(r_.OneIn(4) ? 2 : 0);
    return IsFloat(dtype) ? ConstFloat(g_, dtype, RandomFloat(r_, dtype, kind))
                          : ConstInt(g_, dtype, RandomInt(r_, dtype, kind));
  }

  // Something of the shape of x and of `dtype`.
  const UOp* Partner(const UOp* x, DType dtype) {
    if (r_.OneIn(5)) return Full(g_, RandomConst(dtype), x->shape);
    const UOp* const found = Pick([&](const UOp* n) {
      if (n->shape.size() != x->shape.size()) return false;
      for (size_t i = 0; i < n->shape.size(); ++i)
        if (n->shape[i] != x->shape[i] && n->shape[i] != Dim(1)) return false;
      return true;
    });
    return Cast(g_, Expand(g_, found == nullptr ? x : found, x->shape), dtype);
  }

  // ---- adding ----

  void Keep(const UOp* node) {
    if (node == nullptr || node->dtype == DType::kVoid || node->rank() > kRankMax + 1) return;
    if (CountMax(node->shape) > kElementsMax || table_.Of(node)[0].chaotic) return;
    pool_.push_back(node);
  }

  const UOp* One(Op op, const UOp* x, std::vector<int64_t> arg = {}) {
    return g_.MakeChecked(op, DType::kVoid, {x}, arg);
  }

  // y * y + 1, which keeps away from zero.
  const UOp* AtLeastOne(const UOp* y) {
    return outboard::Add(g_, Mul(g_, y, y), Full(g_, ConstOf(g_, y->dtype, 1), y->shape));
  }

  void Step() {
    switch (r_.Below(26)) {
      case 0: return Leaf();
      case 1: return FloatUnary();
      case 2: return FloatUnary();
      case 3:
      case 4:
      case 5: return Binary();
      case 6: return IntBinary();
      case 7: return Compare();
      case 8: return Logic();
      case 9: return Choose();
      case 10: return Convert();
      case 11:
      case 12:
      case 13:
      case 14: return Movement();
      case 15:
      case 16: return Fold();
      case 17: return Gather();
      case 18: return Window();
      case 19: return PassThrough();
      case 20: return Call();
      case 21: return Divide();
      case 22: return Threefry();
      case 23:
      case 24: return MatMul();
      default: return Movement();
    }
  }

  void Leaf() {
    switch (r_.Below(4)) {
      case 0: return Keep(RandomConst(kTypes[r_.Below(std::size(kTypes))]));
      case 1: return Keep(w_.vars.empty() ? nullptr : r_.Of(w_.vars));
      case 2: return depth_ == 0 ? AddTensor() : Keep(RandomConst(DType::kF32));
      default: return Keep(Iota(g_, kTypes[1 + r_.Below(8)], RandomDim()));
    }
  }

  void FloatUnary() {
    const UOp* const x = AnyFloat();
    if (x == nullptr) return;
    switch (r_.Below(11)) {
      case 0: return Keep(Alu(g_, Op::kNeg, x));
      case 1: return Keep(Alu(g_, Op::kTrunc, x));
      case 2: return Keep(Alu(g_, Op::kSqrt, r_.OneIn(2) ? x : AtLeastOne(x)));
      case 3: return Keep(Alu(g_, Op::kExp2, x));
      case 4: return Keep(Alu(g_, Op::kLog2, AtLeastOne(x)));
      case 5: return Keep(Alu(g_, Op::kSin, x));
      case 6: return Keep(Alu(g_, Op::kExp, x));
      case 7: return Keep(Alu(g_, Op::kLog, AtLeastOne(x)));
      case 8: return Keep(Alu(g_, Op::kCos, x));
      case 9: return Keep(Alu(g_, Op::kTanh, x));
      default: return Keep(Alu(g_, Op::kMax, x, Full(g_, ConstOf(g_, x->dtype, 0), x->shape)));
    }
  }

  void Binary() {
    const UOp* const x = AnyNumber();
    if (x == nullptr) return;
    const Op op = std::vector<Op>{Op::kAdd, Op::kAdd, Op::kMul, Op::kMul, Op::kMax}[r_.Below(5)];
    const UOp* const y = Partner(x, x->dtype);
    Keep(r_.OneIn(2) ? Alu(g_, op, x, y) : Alu(g_, op, y, x));
  }

  void IntBinary() {
    const UOp* const x = AnyInt();
    if (x == nullptr) return;
    if (r_.OneIn(6)) return Keep(Alu(g_, Op::kNeg, x));
    const Op op = std::vector<Op>{Op::kIDiv, Op::kMod, Op::kAnd, Op::kOr,
                                  Op::kXor,  Op::kShl, Op::kShr}[r_.Below(7)];
    Keep(Alu(g_, op, x, Partner(x, x->dtype)));
  }

  void Compare() {
    const UOp* const x = Any();
    const Op op = std::vector<Op>{Op::kCmpLt, Op::kCmpNe, Op::kCmpEq}[r_.Below(3)];
    Keep(Alu(g_, op, x, Partner(x, x->dtype)));
  }

  void Logic() {
    const UOp* const x = Pick([](const UOp* n) { return IsBool(n->dtype); });
    if (x == nullptr) return Compare();
    const Op op = std::vector<Op>{Op::kAnd, Op::kOr, Op::kXor}[r_.Below(3)];
    Keep(Alu(g_, op, x, Partner(x, DType::kBool)));
  }

  void Choose() {
    const UOp* const x = Any();
    const UOp* const condition =
        Pick([&](const UOp* n) { return IsBool(n->dtype) && n->shape == x->shape; });
    Keep(Where(g_, condition == nullptr ? Partner(x, DType::kBool) : condition, x,
               Partner(x, x->dtype)));
  }

  void Convert() {
    const UOp* const x = Any();
    const DType to = kTypes[r_.Below(std::size(kTypes))];
    const bool same_width =
        ByteWidth(to) == ByteWidth(x->dtype) && !IsBool(to) && !IsBool(x->dtype);
    Keep(same_width && r_.OneIn(2) ? Bitcast(g_, x, to) : Cast(g_, x, to));
  }

  void Movement() {
    const UOp* const x = Any();
    Shape dims(x->shape.begin(), x->shape.end());
    const int rank = x->rank();
    switch (r_.Below(8)) {
      case 0: {
        std::vector<int64_t> axes(rank);
        for (int i = 0; i < rank; ++i) axes[i] = i;
        for (int i = rank - 1; i > 0; --i) std::swap(axes[i], axes[r_.Below(i + 1)]);
        return Keep(Permute(g_, x, axes));
      }
      case 1: {
        std::vector<int64_t> axes;
        for (int i = 0; i < rank; ++i)
          if (r_.OneIn(2)) axes.push_back(i);
        return Keep(Flip(g_, x, axes));
      }
      case 2: {
        Shape lo_hi;
        for (int i = 0; i < 2 * rank; ++i) lo_hi.push_back(Dim(r_.OneIn(2) ? 0 : r_.Below(3)));
        return Keep(Pad(g_, x, lo_hi));
      }
      case 3: {
        Shape begin_end;
        for (const Dim& dim : dims) {
          const int64_t begin = r_.Below(dim.min() + 1),
                        end = begin + r_.Below(dim.min() - begin + 1);
          const bool whole = r_.OneIn(2);
          const UOp* const var = w_.vars.empty() ? nullptr : r_.Of(w_.vars);
          begin_end.push_back(Dim(whole ? 0 : begin));
          if (!whole && var != nullptr && begin <= var->vmin && var->vmax <= dim.min() &&
              r_.OneIn(2)) {
            begin_end.push_back(Dim(var));
          } else {
            begin_end.push_back(whole ? dim : Dim(end));
          }
        }
        return Keep(Shrink(g_, x, begin_end));
      }
      case 4:
        for (Dim& dim : dims)
          if (dim == Dim(1) && r_.OneIn(2)) dim = RandomDim();
        if (CountMax(dims) > kElementsMax) return;
        return Keep(Expand(g_, x, dims));
      default: return Keep(Reshape(g_, x, OtherShape(dims)));
    }
  }

  // The same elements: axes of length 1 come and go, axes of numbers merge and split.
  Shape OtherShape(Shape dims) {
    for (int64_t changes = 1 + r_.Below(3); changes > 0; --changes) {
      const auto rank = static_cast<int64_t>(dims.size());
      const int64_t at = rank == 0 ? 0 : r_.Below(rank);
      switch (r_.Below(4)) {
        case 0:
          if (rank < kRankMax) dims.insert(dims.begin() + at, Dim(1));
          break;
        case 1:
          if (rank > 0 && dims[at] == Dim(1)) dims.erase(dims.begin() + at);
          break;
        case 2:
          if (at + 1 < rank && dims[at].is_const() && dims[at + 1].is_const()) {
            dims[at] = Dim(dims[at].value() * dims[at + 1].value());
            dims.erase(dims.begin() + at + 1);
          }
          break;
        default:
          for (const int64_t factor : {5, 3, 2}) {
            if (rank == 0 || rank >= kRankMax || !dims[at].is_const() ||
                dims[at].value() % factor != 0)
              continue;
            dims[at] = Dim(dims[at].value() / factor);
            dims.insert(dims.begin() + at + r_.Below(2), Dim(factor));
            break;
          }
      }
    }
    return dims;
  }

  void Fold() {
    const UOp* const x = AnyNumber();
    if (x == nullptr || x->rank() == 0) return;
    std::vector<int64_t> axes;
    for (int i = 0; i < x->rank(); ++i)
      if (r_.OneIn(2)) axes.push_back(i);
    Keep(Reduce(g_, std::vector<Op>{Op::kAdd, Op::kAdd, Op::kMax, Op::kMul}[r_.Below(4)], x, axes));
  }

  // ---- idioms of the client ----

  // 0, 1 ... along axis `axis` of `dims`.
  const UOp* Along(DType dtype, const Shape& dims, int axis) {
    Shape ones(dims.size(), Dim(1));
    ones[axis] = dims[axis];
    return Expand(g_, Reshape(g_, Iota(g_, dtype, dims[axis]), ones), dims);
  }

  // REDUCE ADD over `axis` of x where the IOTA along it equals `index`; all of shape `dims`.
  void OneHot(const UOp* x, const UOp* index, const Shape& dims, int axis) {
    const UOp* const hot = Alu(g_, Op::kCmpEq, Along(index->dtype, dims, axis), index);
    const UOp* const zero = Full(g_, ConstOf(g_, x->dtype, 0), dims);
    const UOp* const sum = Reduce(g_, Op::kAdd, Where(g_, hot, x, zero), {axis});
    if (r_.OneIn(4)) Keep(hot);  // also wanted for itself, perhaps as a result
    Shape result = dims;
    result.erase(result.begin() + axis);
    Keep(r_.OneIn(4) ? sum : Reshape(g_, sum, result));
  }

  // x[index] along axis 0; indices out of range give 0.
  void Gather() {
    const UOp* const x = Pick([](const UOp* n) { return !IsBool(n->dtype) && n->rank() >= 1; });
    const UOp* const index =
        Pick([](const UOp* n) { return IsInt(n->dtype) && n->rank() >= 1 && n->rank() <= 2; });
    if (x == nullptr || index == nullptr) return;
    const DType type = r_.OneIn(3) ? DType::kI64 : DType::kI32;
    Shape dims(index->shape.begin(), index->shape.end());  // [index..., x...]
    const int axis = index->rank();
    dims.insert(dims.end(), x->shape.begin(), x->shape.end());
    if (CountMax(dims) > kOneHotMax || static_cast<int>(dims.size()) > kRankMax) return;
    Shape index_dims(dims.size(), Dim(1)), x_dims(dims.size(), Dim(1));
    std::copy(index->shape.begin(), index->shape.end(), index_dims.begin());
    std::copy(x->shape.begin(), x->shape.end(), x_dims.begin() + axis);
    OneHot(Expand(g_, Reshape(g_, x, x_dims), dims),
           Expand(g_, Reshape(g_, Cast(g_, index, type), index_dims), dims), dims, axis);
  }

  // Windows of x along an axis: [..., places, kernel, length, ...] with stride and dilation.
  void Window() {
    const UOp* const x = Pick(
        [](const UOp* n) { return !IsBool(n->dtype) && n->rank() >= 1 && n->rank() < kRankMax; });
    if (x == nullptr) return;
    const auto axis = static_cast<int>(r_.Below(x->rank()));
    const int64_t length = x->shape[axis].max();
    const int64_t kernel = 1 + r_.Below(3), stride = 1 + r_.Below(2), dilation = 1 + r_.Below(2);
    if (!x->shape[axis].is_const() || length < 1 + (kernel - 1) * dilation) return;
    const int64_t places = (length - 1 - (kernel - 1) * dilation) / stride + 1;
    Shape dims(x->shape.begin(), x->shape.end()), ones(x->shape.begin(), x->shape.end());
    dims.insert(dims.begin() + axis, {Dim(places), Dim(kernel)});
    ones.insert(ones.begin() + axis, {Dim(1), Dim(1)});
    if (CountMax(dims) > kOneHotMax) return;
    const auto times = [&](const UOp* v, int64_t by) {
      return by == 1 ? v : Mul(g_, v, Full(g_, ConstInt(g_, DType::kI32, by), dims));
    };
    const UOp* const index = outboard::Add(g_, times(Along(DType::kI32, dims, axis), stride),
                                           times(Along(DType::kI32, dims, axis + 1), dilation));
    OneHot(Expand(g_, Reshape(g_, x, ones), dims), index, dims, axis + 2);
  }

  // A product of matrices, the batch in front: the last axis of x against the last of y.
  void MatMul() {
    const UOp* const x = Pick(
        [](const UOp* n) { return !IsBool(n->dtype) && n->rank() >= 2 && n->rank() < kRankMax; });
    if (x == nullptr) return;
    const UOp* const y = Pick([&](const UOp* n) {
      return n->rank() == 2 && (n->shape[1] == x->shape.back() || n->shape[0] == x->shape.back());
    });
    if (y == nullptr) return;
    const UOp* const rows = y->shape[1] == x->shape.back() ? y : Permute(g_, y, {1, 0});
    Shape dims(x->shape.begin(), x->shape.end()), x_dims = dims, y_dims(dims.size() + 1, Dim(1));
    dims.insert(dims.end() - 1, rows->shape[0]);  // [batch..., m, n, k]
    x_dims.insert(x_dims.end() - 1, Dim(1));
    std::copy(rows->shape.begin(), rows->shape.end(), y_dims.end() - 2);
    if (CountMax(dims) > kOneHotMax) return;
    const UOp* const product = Mul(g_, Expand(g_, Reshape(g_, x, x_dims), dims),
                                   Expand(g_, Reshape(g_, Cast(g_, rows, x->dtype), y_dims), dims));
    const UOp* const sum = Reduce(g_, Op::kAdd, product, {static_cast<int64_t>(dims.size()) - 1});
    dims.pop_back();
    Keep(Reshape(g_, sum, dims));
  }

  void Divide() {
    const UOp* const x = AnyFloat();
    if (x == nullptr) return;
    const UOp* const y = Partner(x, x->dtype);
    Keep(Alu(g_, Op::kFDiv, x, r_.OneIn(3) ? y : AtLeastOne(y)));
  }

  void Threefry() {
    const UOp* const x = AnyInt();
    if (x == nullptr) return;
    Keep(Alu(g_, Op::kThreefry, Cast(g_, x, DType::kU64), Partner(x, DType::kU64)));
  }

  void PassThrough() {
    const UOp* const x = Any();
    const int64_t axis = x->rank() == 0 ? 0 : r_.Below(x->rank());
    const Op op = std::vector<Op>{Op::kContiguous, Op::kDetach, Op::kAssign,
                                  Op::kLayout}[r_.Below(4)];
    switch (op) {
      case Op::kAssign: return Keep(g_.MakeChecked(op, DType::kVoid, {Partner(x, x->dtype), x}));
      case Op::kLayout:
        return Keep(One(op, x, {r_.Below(2) - 1, x->rank() == 0 ? -1 : axis}));
      default: return Keep(One(op, x));
    }
  }

  // A FUNCTION of some nodes, called with them and perhaps with others.
  void Call() {
    if (depth_ >= kFunctionDepthMax) return;
    std::vector<const UOp*> arguments;
    for (int64_t i = r_.Below(4); i >= 0; --i) arguments.push_back(Any());
    Builder inside(w_, depth_ + 1);
    std::vector<const UOp*> function_sources = {nullptr};
    for (size_t i = 0; i < arguments.size(); ++i) {
      const UOp* const param =
          Param(g_, static_cast<int64_t>(i), arguments[i]->dtype, arguments[i]->shape);
      inside.AddInput(param, table_.Of(arguments[i])[0]);
      function_sources.push_back(param);
    }
    inside.Grow(static_cast<int>(2 + r_.Below(8)));
    const bool tuple = r_.OneIn(2);
    const std::vector<const UOp*> values =
        inside.Results(static_cast<int>(tuple ? 1 + r_.Below(3) : 1));
    function_sources[0] = tuple ? g_.MakeChecked(Op::kTuple, DType::kVoid, values) : values[0];
    const UOp* const function = g_.MakeChecked(Op::kFunction, DType::kVoid, function_sources);
    for (int64_t calls = 1 + r_.Below(2); calls > 0; --calls) {
      std::vector<const UOp*> sources = {function};
      sources.insert(sources.end(), arguments.begin(), arguments.end());
      const UOp* const call = g_.MakeChecked(Op::kCall, DType::kVoid, sources);
      if (tuple) {
        for (size_t i = 0; i < values.size(); ++i)
          Keep(One(Op::kGetTuple, call, {static_cast<int64_t>(i)}));
      } else {
        Keep(call);
      }
      for (const UOp*& argument : arguments) {
        const UOp* const other = Pick([&](const UOp* n) {
          return n->dtype == argument->dtype && n->shape == argument->shape;
        });
        if (other != nullptr) argument = other;
      }
    }
  }

  World& w_;
  Graph& g_;
  Random& r_;
  const int depth_;
  std::vector<const UOp*> pool_;
  InfoTable table_;
};

}  // namespace

RandomCase MakeRandomCase(uint64_t seed) {
  World world(seed);
  for (int64_t i = world.random.Below(3); i > 0; --i) {
    const auto slot = static_cast<int64_t>(world.vars.size());
    const int64_t min = world.random.Below(3), max = min + 1 + world.random.Below(4);
    world.vars.push_back(Var(world.graph, slot, min, max));
    world.bindings.push_back({slot, min + world.random.Below(max - min + 1)});
  }
  Builder builder(world, /*depth=*/0);
  for (int64_t i = 1 + world.random.Below(3); i > 0; --i) builder.AddTensor();
  builder.Grow(static_cast<int>(4 + world.random.Below(36)));
  const UOp* const sink =
      Sink(world.graph, builder.Results(static_cast<int>(1 + world.random.Below(4))));
  return CaseOfBuffers(sink, world.tensors, world.bindings);
}

RandomCase CaseOfBuffers(const UOp* sink, const std::map<uint64_t, HostTensor>& tensors,
                         std::vector<Binding> bindings) {
  const EncodedGraph encoded = ValueOrDie(EncodeGraph(sink));
  RandomCase c;
  c.graph = std::make_unique<Graph>();
  c.sink = ValueOrDie(DecodeGraph(*c.graph, encoded.bytes));
  for (const uint64_t handle : encoded.buffers) c.params.push_back(tensors.at(handle));
  c.bindings = std::move(bindings);
  return c;
}

}  // namespace outboard::test
