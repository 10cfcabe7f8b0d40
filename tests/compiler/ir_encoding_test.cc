// The canonical encoding: round trips, and bytes that nobody honest sends. Numbers in brackets are
// cases of the hostile suite.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"

namespace outboard {
namespace {

using absl::StatusCode;

// A graph with every kind of thing in it: symbolic dimensions, a function called twice, tuples, all
// sorts of arguments.
const UOp* Everything(Graph& g) {
  const auto node = [&](Op op, Sources src, absl::Span<const int64_t> arg = {}) {
    return g.MakeChecked(op, DType::kVoid, src, arg);
  };
  const UOp* const n = Var(g, 3, 1, 40);
  const UOp* const x = Param(g, 0, DType::kF32, {Dim(n), 4});
  const UOp* const w = Param(g, 1, DType::kF32, {1, 4});
  const UOp* const fx = Param(g, 0, DType::kF32, {Dim(n), 4});
  const UOp* const fw = Param(g, 1, DType::kF32, {Dim(n), 4});
  const UOp* const body = node(
      Op::kTuple,
      {Mul(g, fx, fw), Alu(g, Op::kMax, fx, Full(g, ConstFloat(g, DType::kF32, -0.5), fx->shape))});
  const UOp* const layer = node(Op::kFunction, {body, fx, fw});
  const UOp* const wide = Expand(g, w, x->shape);
  const UOp* const first = node(Op::kCall, {layer, x, wide});
  const UOp* const second = node(Op::kCall, {layer, node(Op::kGetTuple, {first}, {1}), wide});
  const UOp* const padded = Pad(g, node(Op::kGetTuple, {second}, {0}), {1, 2, 0, 3});
  const UOp* const counted = Cast(
      g, Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(n)), {Dim(n), 1}), x->shape), DType::kF32);
  const UOp* const sum = Reduce(g, Op::kAdd, Flip(g, Permute(g, padded, {1, 0}), {1}), {0, 1});
  return Sink(g, {sum, node(Op::kDetach, {Add(g, x, counted)}), ConstInt(g, DType::kU64, -1)});
}

EncodedGraph Encode(const UOp* root) { return ValueOrDie(EncodeGraph(root)); }

StatusCode Decoded(const std::string& bytes, Level level = Level::kTensor) {
  Graph g;
  return DecodeGraph(g, bytes, level).status().code();
}

// An encoding put together by hand.
struct Columns {
  std::string ops, dtypes, source_counts, sources, arg_counts, args;

  static std::string Varint(uint64_t v) {
    std::string out;
    for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
    out.push_back(static_cast<char>(v));
    return out;
  }
  Columns& Add(Op op, DType dtype, std::vector<int> distances,
               std::vector<int64_t> arguments = {}) {
    ops.push_back(static_cast<char>(op));
    dtypes.push_back(static_cast<char>(dtype));
    source_counts += Varint(distances.size());
    for (const int d : distances) sources += Varint(d);
    arg_counts += Varint(arguments.size());
    for (const int64_t a : arguments)
      args += Varint(static_cast<uint64_t>(a) << 1 ^ static_cast<uint64_t>(a >> 63));
    return *this;
  }
  std::string Bytes(uint64_t count) const {
    std::string out = "OBG\x01" + Varint(count);
    for (const std::string* column : {&ops, &dtypes, &source_counts, &sources, &arg_counts, &args})
      out += Varint(column->size()) + *column;
    return out;
  }
  std::string Bytes() const { return Bytes(ops.size()); }
};

constexpr DType kVoid = DType::kVoid, kF32 = DType::kF32;

TEST(Encoding, GoesRound) {
  Graph g, other;
  const UOp* const root = Everything(g);
  const EncodedGraph encoded = Encode(root);
  const UOp* const back = ValueOrDie(DecodeGraph(other, encoded.bytes));
  EXPECT_EQ(GraphToString(back), GraphToString(root));
  EXPECT_EQ(Encode(back).bytes, encoded.bytes);
  EXPECT_EQ(ValueOrDie(DecodeGraph(g, encoded.bytes)),
            root);  // into the graph it came from: interned
}

TEST(Encoding, HandMadeBytesAreThoseOfTheEncoder) {
  Graph g;
  const UOp* const x = Param(g, 0, kF32, {3});
  Columns c;
  c.Add(Op::kParam, kF32, {}, {0, 3}).Add(Op::kNeg, kF32, {1}).Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(c.Bytes(), Encode(Sink(g, {Alu(g, Op::kNeg, x)})).bytes);
  EXPECT_EQ(Decoded(c.Bytes()), StatusCode::kOk);
}

TEST(Encoding, IdsAreEqualEverywhere) {
  Graph a, b;
  Param(b, 9, kF32, {5});  // other nodes, another order of creation
  ConstFloat(b, kF32, 2);
  const auto build = [](Graph& g) {
    const UOp* const x = Param(g, 0, kF32, {5});
    return Sink(g, {Mul(g, x, Full(g, ConstFloat(g, kF32, 2), x->shape))});
  };
  EXPECT_EQ(Encode(build(a)).id, Encode(build(b)).id);
  // Pinned: another number means that every stored id and cached plan is void, and the version must
  // change.
  EXPECT_EQ(Encode(build(a)).id.ToHex(),
            "731b00a3d2e515bbc7e029e07d0a6353ee8b94c9281a86e1510f2ee5bd48f262");
  EXPECT_EQ(GraphIdFromBytes(Encode(build(a)).id.ToBytes()).value(), Encode(build(a)).id);
  EXPECT_EQ(GraphIdFromBytes("short").status().code(), StatusCode::kInvalidArgument);
}

TEST(Encoding, BuffersBecomeParamsInTheOrderOfFirstUse) {
  Graph a, b;
  const auto build = [](Graph& g, uint64_t x, uint64_t y) {
    const UOp *const p = BufferNode(g, x, kF32, {2}), *const q = BufferNode(g, y, kF32, {2});
    return Sink(g, {Add(g, p, Mul(g, q, p))});
  };
  const EncodedGraph one = Encode(build(a, 70, 12)), two = Encode(build(b, 5, 900));
  EXPECT_EQ(one.id, two.id);
  EXPECT_EQ(one.buffers, (std::vector<uint64_t>{70, 12}));
  EXPECT_EQ(two.buffers, (std::vector<uint64_t>{5, 900}));
  Graph g;
  EXPECT_EQ(
      EncodeGraph(Sink(g, {BufferNode(g, 1, kF32, {2}), Param(g, 0, kF32, {2})})).status().code(),
      StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeGraph(Sink(g, {BufferNode(g, 1, kF32, {2}), BufferNode(g, 1, kF32, {3})}))
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(Encoding, ABufferThatEqualsAFunctionsParameter) {
  Graph g, other;
  const UOp* const p = Param(g, 0, kF32, {2});
  const UOp* const square = g.MakeChecked(Op::kFunction, kVoid, {Mul(g, p, p), p});
  const EncodedGraph encoded =
      Encode(Sink(g, {g.MakeChecked(Op::kCall, kVoid, {square, BufferNode(g, 7, kF32, {2})})}));
  EXPECT_EQ(encoded.buffers, std::vector<uint64_t>{7});
  const auto back = DecodeGraph(other, encoded.bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Encode(*back).id, encoded.id);
}

TEST(Encoding, EmptyMagicAndVersion) {  // [1 2 3]
  Graph g;
  std::string bytes = Encode(Everything(g)).bytes;
  EXPECT_EQ(Decoded(""), StatusCode::kInvalidArgument);
  bytes[0] = 'X';
  EXPECT_EQ(Decoded(bytes), StatusCode::kInvalidArgument);
  bytes[0] = 'O';
  bytes[3] = 2;
  EXPECT_EQ(Decoded(bytes), StatusCode::kInvalidArgument);
}

TEST(Encoding, CutAtEveryByteAndLongerByOne) {  // [4 5]
  Graph g;
  const std::string bytes = Encode(Everything(g)).bytes;
  for (size_t length = 0; length < bytes.size(); ++length)
    ASSERT_EQ(Decoded(bytes.substr(0, length)), StatusCode::kInvalidArgument) << length;
  for (const char c : {'\0', '\x01', '\x80'})
    EXPECT_EQ(Decoded(bytes + c), StatusCode::kInvalidArgument);
}

TEST(Encoding,
     EveryBitFlipped) {  // [6] refused, or another graph that is as canonical as the first
  Graph g;
  const std::string bytes = Encode(Everything(g)).bytes;
  int accepted = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    Graph other;
    const auto root = DecodeGraph(other, flipped);
    if (!root.ok()) {
      ASSERT_TRUE(root.status().code() == StatusCode::kInvalidArgument ||
                  root.status().code() == StatusCode::kResourceExhausted ||
                  root.status().code() == StatusCode::kUnimplemented)
          << bit << " " << root.status();
      continue;
    }
    ++accepted;
    ASSERT_TRUE(VerifyGraph(*root, Level::kTensor).ok()) << bit;
    ASSERT_EQ(Encode(*root).bytes, flipped) << bit;
  }
  EXPECT_GT(accepted, 0);  // constants, for one, may have any bits
}

TEST(Encoding, EveryByteReplaced) {
  Graph g;
  const std::string bytes = Encode(Everything(g)).bytes;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const int value : {0, 1, 2, 7, 20, 40, 64, 90, 100, 127, 128, 254, 255}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      Graph other;
      const auto root = DecodeGraph(other, changed);
      if (root.ok()) {
        ASSERT_EQ(Encode(*root).bytes, changed) << at << " " << value;
      }
    }
}

TEST(Encoding, ColumnsOfOtherLengths) {  // [7 10]
  const auto good = [] {
    Columns c;
    c.Add(Op::kParam, kF32, {}, {0, 3}).Add(Op::kNeg, kF32, {1}).Add(Op::kSink, kVoid, {1});
    return c;
  };
  for (std::string Columns::*column : {&Columns::ops, &Columns::dtypes, &Columns::source_counts,
                                       &Columns::sources, &Columns::arg_counts, &Columns::args}) {
    Columns longer = good(), shorter = good();
    (longer.*column).push_back(0);
    (shorter.*column).pop_back();
    EXPECT_EQ(Decoded(longer.Bytes(3)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Decoded(shorter.Bytes(3)), StatusCode::kInvalidArgument);
  }
  for (const uint64_t count : {0, 1, 2, 4, 1000})
    EXPECT_EQ(Decoded(good().Bytes(count)), StatusCode::kInvalidArgument);
}

TEST(Encoding, CountsBeforeBytes) {  // [9 33]
  for (const uint64_t count :
       {uint64_t{0xffffffff}, uint64_t{limits::kGraphNodesMax} + 1, ~uint64_t{0}})
    EXPECT_EQ(Decoded("OBG\x01" + Columns::Varint(count)), StatusCode::kResourceExhausted);
  // As many as allowed, and no bytes behind it.
  EXPECT_EQ(Decoded("OBG\x01" + Columns::Varint(limits::kGraphNodesMax)),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Decoded(std::string(limits::kGraphBytesMax + 1, 'O')), StatusCode::kResourceExhausted);
  // A node with more sources, or arguments, than there may be.
  for (std::string Columns::*column : {&Columns::source_counts, &Columns::arg_counts}) {
    Columns c;
    c.Add(Op::kConst, kF32, {}, {0}).Add(Op::kSink, kVoid, {1});
    c.*column = std::string("\xff\xff\xff\xff\x0f\x00", 6);
    EXPECT_EQ(Decoded(c.Bytes()), StatusCode::kInvalidArgument);
  }
}

TEST(Encoding, NumbersHaveOneSpelling) {  // [8]
  const auto with_arg = [](const std::string& arg) {
    Columns c;
    c.Add(Op::kConst, DType::kI64, {}, {0}).Add(Op::kSink, kVoid, {1});
    c.args = arg;
    return Decoded(c.Bytes());
  };
  const std::string ones(9, '\xff');
  EXPECT_EQ(with_arg(std::string(1, '\0')), StatusCode::kOk);
  EXPECT_EQ(with_arg(ones + "\x01"), StatusCode::kOk);                   // 10 bytes: the lowest i64
  EXPECT_EQ(with_arg(ones + "\x02"), StatusCode::kInvalidArgument);      // over 64 bits
  EXPECT_EQ(with_arg(ones + "\xff\x01"), StatusCode::kInvalidArgument);  // 11 bytes
  EXPECT_EQ(with_arg(std::string("\x80\x00", 2)), StatusCode::kInvalidArgument);  // a longer 0
  EXPECT_EQ(with_arg(std::string("\x81\x00", 2)), StatusCode::kInvalidArgument);  // a longer -1
}

TEST(Encoding, OnlyEarlierNodes) {  // [22 23 24 25 26]
  for (const int distance : {0, 2, 3, 1000}) {
    Columns c;
    c.Add(Op::kConst, kF32, {}, {0}).Add(Op::kNeg, kF32, {distance}).Add(Op::kSink, kVoid, {1});
    EXPECT_EQ(Decoded(c.Bytes()), StatusCode::kInvalidArgument) << distance;
  }
}

TEST(Encoding, OnlyCanonical) {  // [11 19 20 21 38]
  Columns duplicate;
  duplicate.Add(Op::kConst, kF32, {}, {0})
      .Add(Op::kConst, kF32, {}, {0})
      .Add(Op::kAdd, kF32, {2, 1})
      .Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(duplicate.Bytes()), StatusCode::kInvalidArgument);
  Columns unreachable;
  unreachable.Add(Op::kConst, DType::kI8, {}, {1})
      .Add(Op::kConst, DType::kI8, {}, {2})
      .Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(unreachable.Bytes()), StatusCode::kInvalidArgument);
  Columns order;  // 2 - 1 as sources, but 1 first
  order.Add(Op::kConst, DType::kI8, {}, {1})
      .Add(Op::kConst, DType::kI8, {}, {2})
      .Add(Op::kAdd, DType::kI8, {1, 2})
      .Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(order.Bytes()), StatusCode::kInvalidArgument);
  Columns no_sink;
  no_sink.Add(Op::kConst, DType::kI8, {}, {1});
  EXPECT_EQ(Decoded(no_sink.Bytes()), StatusCode::kInvalidArgument);
  Columns two_sinks;
  two_sinks.Add(Op::kConst, DType::kI8, {}, {1})
      .Add(Op::kSink, kVoid, {1})
      .Add(Op::kSink, kVoid, {2, 1});
  EXPECT_EQ(Decoded(two_sinks.Bytes()), StatusCode::kInvalidArgument);
  Columns typed;  // a type that is inferred must still be the right one
  typed.Add(Op::kConst, DType::kI8, {}, {1}).Add(Op::kNeg, kVoid, {1}).Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(typed.Bytes()), StatusCode::kInvalidArgument);
  Columns spare;  // an argument where none is taken
  spare.Add(Op::kConst, DType::kI8, {}, {1})
      .Add(Op::kNeg, DType::kI8, {1}, {5})
      .Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(spare.Bytes()), StatusCode::kInvalidArgument);
  Columns slots;  // slot 1 is used first
  slots.Add(Op::kParam, kF32, {}, {1}).Add(Op::kParam, kF32, {}, {0}).Add(Op::kSink, kVoid, {2, 1});
  EXPECT_EQ(Decoded(slots.Bytes()), StatusCode::kInvalidArgument);
}

TEST(Encoding, CodesThatMeanNothing) {  // [28 29 30 31 32 55]
  for (int code = 0; code < 256; ++code) {
    Columns c;
    c.Add(static_cast<Op>(code), kF32, {}, {0}).Add(Op::kSink, kVoid, {1});
    const bool leaf = code == static_cast<int>(Op::kConst) || code == static_cast<int>(Op::kParam);
    EXPECT_EQ(Decoded(c.Bytes()) == StatusCode::kOk, leaf) << code;
  }
  for (int code = 0; code < 256; ++code) {
    Columns c;
    c.Add(Op::kConst, static_cast<DType>(code), {}, {0}).Add(Op::kSink, kVoid, {1});
    EXPECT_EQ(Decoded(c.Bytes()) == StatusCode::kOk, code > 0 && code < kDTypeCount) << code;
  }
  // Kernels do not come over the wire.
  Columns kernel;
  kernel.Add(Op::kGlobal, kF32, {}, {0, 4})
      .Add(Op::kConst, DType::kI64, {}, {1})
      .Add(Op::kIndex, kF32, {2, 1});
  kernel.Add(Op::kConst, kF32, {}, {0}).Add(Op::kStore, kVoid, {2, 1}).Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(kernel.Bytes(), Level::kKernel), StatusCode::kOk);
  EXPECT_EQ(Decoded(kernel.Bytes()), StatusCode::kInvalidArgument);
}

TEST(Encoding, ManyPathsAndLongChains) {  // [34 35]
  Graph g, back;
  const UOp* diamond = Param(g, 0, kF32, {});
  for (int i = 0; i < 40; ++i) diamond = Add(g, diamond, diamond);
  const std::string bytes = Encode(Sink(g, {diamond})).bytes;
  EXPECT_LT(bytes.size(), 500u);
  EXPECT_EQ(Encode(ValueOrDie(DecodeGraph(back, bytes))).bytes, bytes);
  // A chain as deep as the limit allows.
  Columns chain;
  chain.Add(Op::kParam, kF32, {}, {0});
  for (int64_t i = 2; i < limits::kGraphNodesMax; ++i) chain.Add(Op::kNeg, kF32, {1});
  chain.Add(Op::kSink, kVoid, {1});
  EXPECT_EQ(Decoded(chain.Bytes()), StatusCode::kOk);
}

TEST(Encoding, RefusesToEncodeTooMuch) {
  Graph g;
  const UOp* chain = Param(g, 0, kF32, {});
  while (g.node_count() < limits::kGraphNodesMax) chain = Alu(g, Op::kNeg, chain);
  EXPECT_EQ(g.Make(Op::kNeg, kVoid, {chain}).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard
