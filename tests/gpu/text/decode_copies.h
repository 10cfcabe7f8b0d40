// Decoding of asynchronous copies, mbarriers and matrices.
#pragma once

#include "tests/gpu/text/decoder.h"

namespace outboard::ptx {

class CopyDecoder : public DecoderBase {
 protected:
  using DecoderBase::DecoderBase;

  // ---- asynchronous copies

  void Copy() {
    Need("async");
    if (Has("bulk")) return Bulk();
    if (Has("commit_group")) {
      in_.op = Op::kCpCommit;
    } else if (Has("wait_all")) {
      in_.op = Op::kCpWait;
      in_.offset = -1;
    } else if (Has("wait_group")) {
      in_.op = Op::kCpWait;
      in_.offset = Number(0);
    } else if (Has("mbarrier")) {
      Need("arrive");
      in_.op = Op::kCpMbarArrive;
      in_.mode = Has("noinc");
      TakeSpace();
      TakeType();
      AddressOf(0, &in_.a, &in_.offset);
    } else {
      in_.op = Op::kCpAsync;
      const bool cg = TakeOneOf({"ca", "cg"}) == 1;
      if (!Has("shared") && !Has("shared::cta")) return Fail("the target is not shared memory");
      Need("global");
      Optional({"L2::64B", "L2::128B", "L2::256B"});
      if (!Count(3, 4)) return;
      AddressOf(0, &in_.a, &in_.offset);
      in_.b = AddressRow(1);
      const int64_t bytes = Number(2);
      if (bytes != 16 && (cg || (bytes != 4 && bytes != 8))) return Fail("unknown size");
      in_.mode = static_cast<uint8_t>(bytes);
      if (operands_.size() == 4) in_.c = Source(3, Type::kU32);
    }
  }
  void Bulk() {
    if (Has("commit_group")) {
      in_.op = Op::kBulkCommit;
      return;
    }
    if (Has("wait_group")) {
      in_.op = Op::kBulkWait;
      if (Has("read")) in_.flags |= kFlagRead;
      in_.offset = Number(0);
      return;
    }
    const bool prefetch = Has("prefetch");
    const bool tensor = Has("tensor");
    int dimensions = 0;
    if (tensor) dimensions = 1 + TakeOneOf({"1d", "2d", "3d", "4d", "5d"});
    if (tensor && dimensions == 0) return Fail("the number of dimensions is missing");
    in_.mode = static_cast<uint8_t>(dimensions);
    Has("tile");
    if (prefetch) {
      in_.op = tensor ? Op::kTensorPrefetch : Op::kBulkPrefetch;
      Need("L2");
      Need("global");
      if (tensor || !Count(2, 2)) return;
      AddressOf(0, &in_.a, &in_.offset);
      in_.d2 = Source(1, Type::kU32);
      return;
    }
    // The first space is the target.
    bool load = false;
    for (const std::string_view part : parts_) {
      if (part == "global") break;
      if (part == "shared::cluster" || part == "shared::cta") load = true;
    }
    Need("global");
    if (!Has("shared::cluster")) Need("shared::cta");
    const bool hint = Has("L2::cache_hint");
    if (load) {
      Need("mbarrier::complete_tx::bytes");
      if (Has("multicast::cluster")) in_.flags |= kFlagMulticast;
    } else {
      Need("bulk_group");
    }
    const bool multicast = (in_.flags & kFlagMulticast) != 0;
    if (tensor) {
      in_.op = load ? Op::kTensorLoad : Op::kTensorStore;
      const size_t map = load ? 1 : 0;
      if (!Count((load ? 3 : 2) + multicast + hint, (load ? 3 : 2) + multicast + hint)) return;
      if (operands_[map].kind != Operand::kAddress) return Fail("the tensor map is no address");
      in_.b = operands_[map].row;
      if (in_.b < 0) in_.b = builder_->Constant(operands_[map].offset);
      if (static_cast<int>(operands_[map].list.size()) != dimensions)
        return Fail("the number of coordinates does not fit");
      if (load) in_.c = AddressRow(2);
      if (multicast) in_.e = Source(3, Type::kU16);
      AddressOf(load ? 0 : 1, &in_.a, &in_.offset);
      StartList();
      for (const Operand& coordinate : operands_[map].list) Push(Row(coordinate, Type::kS32));
      return;
    }
    in_.op = load ? Op::kBulkLoad : Op::kBulkStore;
    if (!Count((load ? 4 : 3) + multicast + hint, (load ? 4 : 3) + multicast + hint)) return;
    AddressOf(0, &in_.a, &in_.offset);
    in_.b = AddressRow(1);
    in_.d2 = Source(2, Type::kU32);
    if (load) in_.c = AddressRow(3);
    if (multicast) in_.e = Source(4, Type::kU16);
  }

  void Mbarrier() {
    const bool expects = Has("expect_tx");
    Optional({"release", "acquire", "relaxed", "cta", "cluster"});
    in_.space = TakeSpace();
    if (Has("init")) {
      in_.op = Op::kMbarInit;
      AddressOf(0, &in_.a, &in_.offset);
      in_.b = Source(1, Type::kU32);
    } else if (Has("inval")) {
      in_.op = Op::kMbarInval;
      AddressOf(0, &in_.a, &in_.offset);
    } else if (Has("arrive")) {
      in_.op = Op::kMbarArrive;
      if (Has("noComplete")) in_.flags |= kFlagNoComplete;
      // The state may be left out where nobody reads it.
      const size_t first = !operands_.empty() && operands_[0].kind == Operand::kAddress ? 0 : 1;
      if (first == 1) in_.d = Dest(0);
      AddressOf(first, &in_.a, &in_.offset);
      if (expects) {
        in_.flags |= kFlagExpectTx;
        in_.c = Source(first + 1, Type::kU32);
      } else if (operands_.size() == first + 2) {
        in_.b = Source(first + 1, Type::kU32);
      }
    } else if (Has("test_wait") || Has("try_wait")) {
      in_.op = Op::kMbarWait;
      if (parts_[1] == "test_wait") in_.flags |= kFlagLateFalse;
      if (Has("parity")) in_.flags |= kFlagParity;
      if (!Count(3, 4)) return;
      in_.d = Dest(0);
      AddressOf(1, &in_.a, &in_.offset);
      in_.b = Source(2, Type::kU64);
    } else if (expects) {
      in_.op = Op::kMbarExpect;
      AddressOf(0, &in_.a, &in_.offset);
      in_.c = Source(1, Type::kU32);
    } else {
      return Fail("unknown instruction");
    }
    if (TakeType() != Type::kB64) Fail("an mbarrier is .b64");
  }

  // ---- matrices

  void Ldmatrix() {
    const bool load = parts_[0] == "ldmatrix";
    in_.op = load ? Op::kLdmatrix : Op::kStmatrix;
    Need("sync");
    Need("aligned");
    in_.aligned = true;
    Need("m8n8");
    const int log = TakeOneOf({"x1", "x2", "x4"});
    if (log < 0) return Fail("a number of matrices is missing");
    in_.mode = static_cast<uint8_t>(1 << log);
    in_.transposed = Has("trans");
    in_.space = TakeSpace();
    if (TakeType() != Type::kB16) return Fail("only .b16 is known");
    if (!Count(2, 2)) return;
    AddressOf(load ? 1 : 0, &in_.a, &in_.offset);
    StartList();
    if (PushList(load ? 0 : 1, Type::kB32, load) != in_.mode) Fail("the vector has another length");
  }

  bool TakeShape(MatrixShape* shape) {
    for (size_t i = 1; i < parts_.size(); ++i) {
      const std::string part(parts_[i]);
      if (used_[i] || part[0] != 'm' ||
          std::sscanf(part.c_str(), "m%dn%dk%d", &shape->m, &shape->n, &shape->k) != 3)
        continue;
      return used_[i] = true;
    }
    Fail("a shape is missing");
    return false;
  }
  static int Bits(Type type) { return type == Type::kTf32 ? 32 : 8 * BytesOf(type); }

  void Mma() {
    in_.op = Op::kMma;
    Need("sync");
    Need("aligned");
    in_.aligned = true;
    Need("row");
    Need("col");
    in_.sat = Has("satfinite");
    MatrixShape shape;
    if (!TakeShape(&shape)) return;
    shape.d = TakeType();
    shape.a = TakeType();
    shape.b = TakeType();
    shape.c = TakeType();
    if (!Count(4, 4)) return;
    StartList();
    shape.d_count = PushList(0, shape.d, true);
    shape.a_count = PushList(1, shape.a, false);
    shape.b_count = PushList(2, shape.b, false);
    shape.c_count = PushList(3, shape.c, false);
    const auto registers = [](int elements, Type type) {
      const int width = type == Type::kF64 ? 64 : 32;
      return elements * Bits(type) / 32 / width;
    };
    const bool known = (shape.m == 16 && shape.n == 8) ||
                       (shape.m == 8 && shape.n == 8 && shape.k == 4 && shape.a == Type::kF64);
    if (!known) return Fail("unknown shape");
    if (registers(shape.m * shape.n, shape.d) != shape.d_count ||
        registers(shape.m * shape.k, shape.a) != shape.a_count ||
        registers(shape.k * shape.n, shape.b) != shape.b_count ||
        registers(shape.m * shape.n, shape.c) != shape.c_count)
      return Fail("the numbers of registers do not fit the shape");
    in_.shape = static_cast<int32_t>(function_->shapes.size());
    function_->shapes.push_back(shape);
  }

  void Wgmma() {
    in_.aligned = true;
    if (Has("fence")) {
      in_.op = Op::kWgmmaFence;
    } else if (Has("commit_group")) {
      in_.op = Op::kWgmmaCommit;
    } else if (Has("wait_group")) {
      in_.op = Op::kWgmmaWait;
      in_.offset = Number(0);
    } else {
      Need("mma_async");
      WgmmaProduct();
    }
    Need("sync");
    Need("aligned");
  }
  void WgmmaProduct() {
    in_.op = Op::kWgmma;
    in_.sat = Has("satfinite");
    MatrixShape shape;
    if (!TakeShape(&shape)) return;
    shape.d = TakeType();
    shape.a = TakeType();
    shape.b = TakeType();
    shape.c = shape.d;
    const int bits = Bits(shape.a);
    if (shape.m != 64 || shape.n % 8 != 0 || shape.n < 8 || shape.n > 256 || shape.k * bits != 256)
      return Fail("unknown shape");
    if (!Count(4, 8)) return;
    StartList();
    shape.d_count = PushList(0, shape.d, true);
    if (shape.d_count != shape.n * 64 * Bits(shape.d) / 32 / 128)
      return Fail("the number of accumulators does not fit the shape");
    if (operands_[1].kind == Operand::kList) {
      shape.a_count = PushList(1, shape.a, false);
      if (shape.a_count != 4) return Fail("A has four registers");
    } else {
      in_.a = Source(1, Type::kB64);
    }
    in_.b = Source(2, Type::kB64);
    in_.c = Source(3, Type::kPred);
    size_t next = 4;
    const auto flag = [&](bool* value, int64_t when) {
      if (next >= operands_.size()) return Fail("an operand is missing");
      const int64_t number = Number(next++);
      *value = number == when;
    };
    const bool integers = shape.d == Type::kS32;
    if (!integers) {
      flag(&shape.negate_a, -1);
      flag(&shape.negate_b, -1);
    }
    if (bits == 16) {
      if (shape.a_count == 0) flag(&shape.transpose_a, 1);
      flag(&shape.transpose_b, 1);
    }
    if (next != operands_.size()) return Fail("too many operands");
    in_.shape = static_cast<int32_t>(function_->shapes.size());
    function_->shapes.push_back(shape);
  }
};

}  // namespace outboard::ptx
