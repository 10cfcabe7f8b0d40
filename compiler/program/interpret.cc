#include "compiler/program/interpret.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/bf16_products.h"
#include "compiler/reference/alu.h"

namespace outboard::program {
namespace {

// Who has touched an element. A number of steps between two barriers is an epoch.
struct Touched {
  int64_t write_block = -1, read_block = -1;
  int32_t write_thread = 0, write_epoch = 0, read_thread = 0, read_epoch = 0;
  bool many_readers = false, many_reading_blocks = false;
  bool arriving = false;  // a copy is on its way
};

struct Memory {
  char* bytes = nullptr;
  int64_t elements = 0;
  DType dtype = DType::kVoid;
  std::vector<Touched>* touched = nullptr;  // null: no other thread can access it
  std::vector<uint8_t>* written = nullptr;  // null: all of it
};

struct OwnMemory {
  std::vector<char> bytes;
  std::vector<uint8_t> written;
  std::vector<Touched> touched;
};

// One that a thread has begun.
struct Copy {
  ValueId at;
  int64_t to, from;
  bool arrived;
};

enum class State { kRunning, kAtBarrier, kAtMma, kDone };

struct Thread {
  ValueId pc = 0;
  State state = State::kRunning;
  std::vector<int64_t> registers;  // floats by their bits
  std::vector<int64_t> limits;     // of loops, by number
  std::vector<OwnMemory> memories;
  std::vector<Copy> begun;                // since the last COMMIT
  std::vector<std::vector<Copy>> groups;  // oldest first
};

double AsFloat(int64_t bits) { return std::bit_cast<double>(bits); }
int64_t AsBits(double value) { return std::bit_cast<int64_t>(value); }

class Interpreter {
 public:
  Interpreter(const Program& program, std::span<std::string> buffers, std::span<const int64_t> vars,
              const RunOptions& options)
      : program_(program),
        buffers_(buffers),
        vars_(vars),
        steps_(options.steps_max),
        random_(options.seed) {
    const size_t count = program.code.size();
    place_.resize(count);
    partner_.resize(count, -1);
    memory_.resize(count, -1);
    int64_t registers = 0;
    int memories = 0;
    for (size_t n = 0; n < count; ++n) {
      const Instruction& i = program.code[n];
      place_[n] = registers;
      if (HasValue(i.code)) registers += i.lanes;
      if (i.code == Code::kEnd || i.code == Code::kEndIf) {
        partner_[n] = i.src[0];
        partner_[i.src[0]] = static_cast<ValueId>(n);
      }
      if (i.code == Code::kAlloc) memory_[n] = memories++;
    }
    registers_ = registers;
    memories_ = memories;
    blocks_ = program.Extent(Grid::kBlock);
    thread_count_ = static_cast<int>(program.Extent(Grid::kThread));
  }

  RunReport Run() {
    touched_.resize(buffers_.size());
    if (blocks_ * thread_count_ > 1)
      for (const Instruction& i : program_.code)
        if (i.code == Code::kBuffer) touched_[i.imm[0]].resize(i.imm[1]);
    std::vector<int64_t> order(blocks_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t block : order) {
      block_ = block;
      RunBlock();
      if (!outcome_.ok()) break;
    }
    return outcome_;
  }

 private:
  const Instruction& at(ValueId n) const { return program_.code[n]; }

  void Report(Fault fault, ValueId n, int thread, const std::string& what) {
    if (!outcome_.ok()) return;
    outcome_ = {fault, n,
                absl::StrCat(std::string(Name(fault)), " at ", ToString(program_, n), ", block ",
                             block_, ", thread ", thread, ": ", what)};
  }

  void RunBlock() {
    threads_.assign(thread_count_, {});
    for (Thread& t : threads_) {
      t.registers.resize(registers_);
      t.limits.resize(program_.code.size());
      t.memories.resize(memories_);
    }
    shared_.assign(memories_, {});
    for (size_t n = 0; n < program_.code.size(); ++n)
      if (memory_[n] >= 0 && IsShared(static_cast<ValueId>(n))) {
        OwnMemory& own = shared_[memory_[n]];
        own.bytes.resize(at(static_cast<ValueId>(n)).imm[1] *
                         ByteWidth(at(static_cast<ValueId>(n)).dtype));
        own.written.assign(at(static_cast<ValueId>(n)).imm[1], 0);
        own.touched.assign(at(static_cast<ValueId>(n)).imm[1], {});
      }
    epoch_ = 0;
    while (outcome_.ok()) {
      std::vector<int> running;
      for (int t = 0; t < thread_count_; ++t)
        if (threads_[t].state == State::kRunning) running.push_back(t);
      if (running.empty()) {
        if (!PassTogether()) return;
        continue;
      }
      const int chosen = running.size() == 1 ? running[0] : running[random_() % running.size()];
      // Long enough not to be slow, short enough to overtake in the middle of things.
      const int64_t slice = thread_count_ == 1 ? INT64_MAX : 1 + random_() % 32;
      for (int64_t s = 0; s < slice && threads_[chosen].state == State::kRunning; ++s) {
        Step(chosen);
        if (!outcome_.ok()) return;
      }
    }
  }

  // Nobody can go on alone. Returns false where the block is done, or stuck.
  bool PassTogether() {
    const auto all = [&](State state) {
      return std::all_of(threads_.begin(), threads_.end(),
                         [&](const Thread& t) { return t.state == state; });
    };
    if (all(State::kDone)) return false;
    bool passed = false;
    for (int first = 0; first + kMmaThreads <= thread_count_; first += kMmaThreads) {
      bool together = true;
      for (int t = first; t < first + kMmaThreads; ++t)
        together =
            together && threads_[t].state == State::kAtMma && threads_[t].pc == threads_[first].pc;
      if (together) {
        Multiply(first);
        passed = true;
      }
    }
    if (passed) return true;
    const bool same = std::all_of(threads_.begin(), threads_.end(), [&](const Thread& t) {
      return t.state == State::kAtBarrier && t.pc == threads_[0].pc;
    });
    if (!same) {
      for (int t = 0; t < thread_count_; ++t)
        if (threads_[t].state != State::kDone) {
          Report(Fault::kDivergence, threads_[t].pc, t, "not all threads come here");
          break;
        }
      return false;
    }
    ++epoch_;
    for (Thread& t : threads_) {
      t.state = State::kRunning;
      ++t.pc;
    }
    return true;
  }

  void Multiply(int first) {
    const ValueId n = threads_[first].pc;
    const Instruction& i = at(n);
    double a[16][16], b[16][8], c[16][8];
    const auto each = [&](MmaOperand operand, int lanes, const auto& visit) {
      for (int t = 0; t < kMmaThreads; ++t)
        for (int lane = 0; lane < lanes; ++lane)
          visit(MmaElement(operand, t, lane), threads_[first + t], lane);
    };
    each(MmaOperand::kA, 8, [&](MatrixPlace p, Thread& t, int lane) {
      a[p.row][p.column] = AsFloat(t.registers[place_[i.src[0]] + lane]);
    });
    each(MmaOperand::kB, 4, [&](MatrixPlace p, Thread& t, int lane) {
      b[p.row][p.column] = AsFloat(t.registers[place_[i.src[1]] + lane]);
    });
    each(MmaOperand::kC, 4, [&](MatrixPlace p, Thread& t, int lane) {
      c[p.row][p.column] = AsFloat(t.registers[place_[i.src[2]] + lane]);
    });
    each(MmaOperand::kC, 4, [&](MatrixPlace p, Thread& t, int lane) {
      double sum = c[p.row][p.column];
      for (int k = 0; k < 16; ++k) sum += a[p.row][k] * b[k][p.column];
      t.registers[place_[n] + lane] = AsBits(RoundTo(DType::kF32, sum));
    });
    for (int t = first; t < first + kMmaThreads; ++t) {
      threads_[t].state = State::kRunning;
      ++threads_[t].pc;
    }
  }

  bool IsShared(ValueId n) const {
    return at(n).code == Code::kAlloc && at(n).imm[0] == static_cast<int64_t>(Space::kShared);
  }

  Memory MemoryOf(ValueId n, int thread) {
    const Instruction& i = at(n);
    Memory out;
    out.elements = i.imm[1];
    out.dtype = i.dtype;
    if (i.code == Code::kBuffer) {
      std::string& buffer = buffers_[i.imm[0]];
      OB_CHECK(static_cast<int64_t>(buffer.size()) >= i.imm[1] * ByteWidth(i.dtype));
      out.bytes = buffer.data();
      if (!touched_[i.imm[0]].empty()) out.touched = &touched_[i.imm[0]];
      return out;
    }
    OwnMemory& own = IsShared(n) ? shared_[memory_[n]] : threads_[thread].memories[memory_[n]];
    out.bytes = own.bytes.data();
    out.written = &own.written;
    if (IsShared(n)) out.touched = &own.touched;
    return out;
  }

  bool InRange(const Memory& memory, int64_t element, ValueId n, int thread) {
    if (element >= 0 && element < memory.elements) return true;
    Report(Fault::kOutOfRange, n, thread,
           absl::StrCat("element ", element, " of ", memory.elements));
    return false;
  }

  void Race(ValueId n, int thread, int64_t element, std::string_view what) {
    Report(Fault::kRace, n, thread, absl::StrCat("element ", element, " ", std::string(what)));
  }

  void TouchToRead(const Memory& memory, int64_t element, ValueId n, int thread) {
    if (memory.touched == nullptr) return;
    Touched& by = (*memory.touched)[element];
    if (by.arriving) Race(n, thread, element, "is read before its copy is waited for");
    if (by.write_block >= 0) {
      if (by.write_block != block_) Race(n, thread, element, "is written by another block");
      if (by.write_epoch == epoch_ && by.write_thread != thread)
        Race(n, thread, element, "is written by another thread, with no barrier between");
    }
    if (by.read_block >= 0 && by.read_block != block_) by.many_reading_blocks = true;
    const bool same = by.read_block == block_ && by.read_epoch == epoch_;
    by.many_readers = same && (by.many_readers || by.read_thread != thread);
    by.read_block = block_;
    by.read_thread = thread;
    by.read_epoch = epoch_;
  }

  void TouchToWrite(const Memory& memory, int64_t element, ValueId n, int thread) {
    if (memory.touched == nullptr) return;
    Touched& by = (*memory.touched)[element];
    if (by.arriving) Race(n, thread, element, "is written while a copy is on its way there");
    if (by.write_block >= 0) {
      if (by.write_block != block_) Race(n, thread, element, "is written by two blocks");
      if (by.write_epoch == epoch_ && by.write_thread != thread)
        Race(n, thread, element, "is written by two threads, with no barrier between");
    }
    if (by.read_block >= 0) {
      if (by.many_reading_blocks || by.read_block != block_)
        Race(n, thread, element, "is read by another block");
      if (by.read_epoch == epoch_ && (by.many_readers || by.read_thread != thread))
        Race(n, thread, element, "is read by another thread, with no barrier between");
    }
    by.write_block = block_;
    by.write_thread = thread;
    by.write_epoch = epoch_;
  }

  void Move(const Copy& copy, int thread) {
    const Instruction& i = at(copy.at);
    const Memory to = MemoryOf(i.src[0], thread), from = MemoryOf(i.src[2], thread);
    const int width = ByteWidth(to.dtype);
    std::copy_n(from.bytes + copy.from * width, i.imm[0] * width, to.bytes + copy.to * width);
  }

  void Begin(ValueId n, int thread) {
    const Instruction& i = at(n);
    Thread& t = threads_[thread];
    const Memory to = MemoryOf(i.src[0], thread), from = MemoryOf(i.src[2], thread);
    Copy copy{n, t.registers[place_[i.src[1]]], t.registers[place_[i.src[3]]], random_() % 2 == 0};
    for (int64_t e = 0; e < i.imm[0]; ++e) {
      if (!InRange(to, copy.to + e, n, thread) || !InRange(from, copy.from + e, n, thread)) return;
      TouchToRead(from, copy.from + e, n, thread);
      TouchToWrite(to, copy.to + e, n, thread);
      (*to.touched)[copy.to + e].arriving = true;
    }
    if (copy.arrived) Move(copy, thread);
    t.begun.push_back(copy);
  }

  void Wait(int64_t but, int thread) {
    Thread& t = threads_[thread];
    while (static_cast<int64_t>(t.groups.size()) > but) {
      for (const Copy& copy : t.groups.front()) {
        if (!copy.arrived) Move(copy, thread);
        const Instruction& i = at(copy.at);
        const Memory to = MemoryOf(i.src[0], thread);
        for (int64_t e = 0; e < i.imm[0]; ++e) {
          Touched& by = (*to.touched)[copy.to + e];
          by.arriving = false;
          by.write_thread = thread;
          by.write_epoch = epoch_;
          (*to.written)[copy.to + e] = 1;
        }
      }
      t.groups.erase(t.groups.begin());
    }
  }

  void Load(ValueId n, int thread) {
    const Instruction& i = at(n);
    std::vector<int64_t>& r = threads_[thread].registers;
    const Memory memory = MemoryOf(i.src[0], thread);
    const bool gathers = at(i.src[1]).lanes == i.lanes;
    for (int lane = 0; lane < i.lanes; ++lane) {
      int64_t& out = r[place_[n] + lane];
      if (i.src.size() == 4 && r[place_[i.src[2]] + lane] == 0) {
        out = r[place_[i.src[3]] + lane];
        continue;
      }
      const int64_t element = gathers ? r[place_[i.src[1]] + lane] : r[place_[i.src[1]]] + lane;
      if (!InRange(memory, element, n, thread)) return;
      TouchToRead(memory, element, n, thread);
      if (memory.written != nullptr && (*memory.written)[element] == 0)
        return Report(Fault::kUninitialised, n, thread,
                      absl::StrCat("element ", element, " was never written"));
      const char* const bytes = memory.bytes + element * ByteWidth(memory.dtype);
      out = IsFloat(memory.dtype) ? AsBits(LoadFloat(memory.dtype, bytes))
                                  : LoadInt(memory.dtype, bytes);
    }
  }

  void Store(ValueId n, int thread) {
    const Instruction& i = at(n);
    const std::vector<int64_t>& r = threads_[thread].registers;
    const Memory memory = MemoryOf(i.src[0], thread);
    const bool scatters = at(i.src[1]).lanes == i.lanes;
    for (int lane = 0; lane < i.lanes; ++lane) {
      if (i.src.size() == 4 && r[place_[i.src[3]] + lane] == 0) continue;
      const int64_t element = scatters ? r[place_[i.src[1]] + lane] : r[place_[i.src[1]]] + lane;
      if (!InRange(memory, element, n, thread)) return;
      TouchToWrite(memory, element, n, thread);
      if (memory.written != nullptr) (*memory.written)[element] = 1;
      char* const bytes = memory.bytes + element * ByteWidth(memory.dtype);
      const int64_t value = r[place_[i.src[2]] + lane];
      IsFloat(memory.dtype) ? StoreFloat(memory.dtype, AsFloat(value), bytes)
                            : StoreInt(memory.dtype, value, bytes);
    }
  }

  // The elements of a tile, or nullptr where one that is read was never written.
  char* TileOf(ValueId n, ValueId tile, int thread, bool reads) {
    const Memory memory = MemoryOf(tile, thread);
    for (int64_t e = 0; e < memory.elements; ++e) {
      if (reads && (*memory.written)[e] == 0) {
        Report(Fault::kUninitialised, n, thread, absl::StrCat("of the tile, element ", e));
        return nullptr;
      }
      (*memory.written)[e] = 1;
    }
    return memory.bytes;
  }

  void MoveTile(ValueId n, int thread) {
    const Instruction& i = at(n);
    const bool load = i.code == Code::kTileLoad;
    const Memory memory = MemoryOf(i.src[1], thread);
    char* const tile = TileOf(n, i.src[0], thread, !load);
    const int width = ByteWidth(memory.dtype);
    for (int64_t row = 0; tile != nullptr && row < kTileSide; ++row)
      for (int64_t column = 0; column < kTileSide; ++column) {
        const int64_t element =
            threads_[thread].registers[place_[i.src[2]]] + row * i.imm[0] + column;
        if (!InRange(memory, element, n, thread)) return;
        if (load && (*memory.written)[element] == 0)
          return Report(Fault::kUninitialised, n, thread,
                        absl::StrCat("element ", element, " was never written"));
        (*memory.written)[element] = 1;
        char *const inside = tile + (row * kTileSide + column) * width, *const outside =
                                                                            memory.bytes +
                                                                            element * width;
        std::memcpy(load ? inside : outside, load ? outside : inside, width);
      }
  }

  void MultiplyTiles(ValueId n, int thread) {
    char* tiles[3];
    for (int s = 0; s < 3; ++s) {
      tiles[s] = TileOf(n, at(n).src[s], thread, true);
      if (tiles[s] == nullptr) return;
    }
    AddTileProducts(reinterpret_cast<float*>(tiles[0]), reinterpret_cast<uint32_t*>(tiles[1]),
                    reinterpret_cast<uint32_t*>(tiles[2]));
  }

  void Dot(ValueId n, int thread) {
    const Instruction& i = at(n);
    std::vector<int64_t>& r = threads_[thread].registers;
    for (int lane = 0; lane < i.lanes; ++lane)
      r[place_[n] + lane] =
          AsBits(AddPairProducts(static_cast<float>(AsFloat(r[place_[i.src[0]] + lane])),
                                 static_cast<uint32_t>(r[place_[i.src[1]] + lane]),
                                 static_cast<uint32_t>(r[place_[i.src[2]] + lane])));
  }

  // The same bytes in other lanes.
  void BitcastLanes(ValueId n, int thread) {
    const Instruction &i = at(n), &from = at(i.src[0]);
    std::vector<int64_t>& r = threads_[thread].registers;
    std::vector<char> bytes(from.lanes * ByteWidth(from.dtype));
    for (int lane = 0; lane < from.lanes; ++lane) {
      char* const to = bytes.data() + lane * ByteWidth(from.dtype);
      const int64_t value = r[place_[i.src[0]] + lane];
      IsFloat(from.dtype) ? StoreFloat(from.dtype, AsFloat(value), to)
                          : StoreInt(from.dtype, value, to);
    }
    for (int lane = 0; lane < i.lanes; ++lane) {
      const char* const at_lane = bytes.data() + lane * ByteWidth(i.dtype);
      r[place_[n] + lane] =
          IsFloat(i.dtype) ? AsBits(LoadFloat(i.dtype, at_lane)) : LoadInt(i.dtype, at_lane);
    }
  }

  void Into(reference::LaneBlock& tile, DType dtype, const int64_t* values, int lanes) {
    tile.Resize(dtype, lanes);
    for (int lane = 0; lane < lanes; ++lane)
      IsFloat(dtype) ? void(tile.f[lane] = AsFloat(values[lane]))
                     : void(tile.i[lane] = values[lane]);
  }
  void From(const reference::LaneBlock& tile, DType dtype, int64_t* values, int lanes) {
    for (int lane = 0; lane < lanes; ++lane)
      values[lane] = IsFloat(dtype) ? AsBits(tile.f[lane]) : tile.i[lane];
  }

  // Most of what runs is indices and plain floats; with the reference's vectors it would be slow.
  static bool Quick(Op op, DType dtype, int64_t a, int64_t b, int64_t* out) {
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    if (dtype == DType::kI64) switch (op) {
        case Op::kAdd: return *out = static_cast<int64_t>(ua + ub), true;
        case Op::kMul: return *out = static_cast<int64_t>(ua * ub), true;
        case Op::kCmpLt: return *out = a < b, true;
        case Op::kIDiv: return b > 0 ? (*out = a / b, true) : false;
        case Op::kMod: return b > 0 ? (*out = a % b, true) : false;
        default: return false;
      }
    if (dtype == DType::kBool && op == Op::kAnd) return *out = a & b, true;
    if (dtype == DType::kF32 && op == Op::kAdd)
      return *out = AsBits(static_cast<float>(AsFloat(a) + AsFloat(b))), true;
    if (dtype == DType::kF32 && op == Op::kMul)
      return *out = AsBits(static_cast<float>(AsFloat(a) * AsFloat(b))), true;
    return false;
  }

  void Arithmetic(ValueId n, int thread) {
    const Instruction& i = at(n);
    std::vector<int64_t>& r = threads_[thread].registers;
    int64_t* const out = &r[place_[n]];
    const auto source = [&](int s) { return &r[place_[i.src[s]]]; };
    const DType operand = at(i.src[i.op == Op::kWhere ? 1 : 0]).dtype;
    if (i.op == Op::kWhere) {
      for (int lane = 0; lane < i.lanes; ++lane)
        out[lane] = source(source(0)[lane] != 0 ? 1 : 2)[lane];
      return;
    }
    if (i.op == Op::kMulAcc) {
      for (int lane = 0; lane < i.lanes; ++lane) {
        const int64_t a = source(0)[lane], b = source(1)[lane], c = source(2)[lane];
        if (operand == DType::kF32) {
          out[lane] =
              AsBits(std::fma(static_cast<float>(AsFloat(a)), static_cast<float>(AsFloat(b)),
                              static_cast<float>(AsFloat(c))));
        } else if (IsFloat(operand)) {
          out[lane] = AsBits(RoundTo(operand, std::fma(AsFloat(a), AsFloat(b), AsFloat(c))));
        } else {
          out[lane] = WrapTo(
              operand, static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) +
                                            static_cast<uint64_t>(c)));
        }
      }
      return;
    }
    if (i.lanes == 1 && i.src.size() == 2 && Quick(i.op, operand, source(0)[0], source(1)[0], out))
      return;
    Into(a_, operand, source(0), i.lanes);
    if (i.src.size() > 1) Into(b_, operand, source(1), i.lanes);
    c_.Resize(i.dtype, i.lanes);
    reference::AluTile(i.op, operand, a_, b_, c_);
    From(c_, i.dtype, out, i.lanes);
  }

  void Step(int thread) {
    Thread& t = threads_[thread];
    const ValueId n = t.pc;
    if (n >= static_cast<ValueId>(program_.code.size())) {
      t.state = State::kDone;
      return;
    }
    if (--steps_ < 0) return Report(Fault::kTooLong, n, thread, "over the limit of steps");
    const Instruction& i = at(n);
    std::vector<int64_t>& r = t.registers;
    int64_t* const out = &r[0] + place_[n];
    ++t.pc;
    switch (i.code) {
      case Code::kConst: *out = i.imm[0]; break;
      case Code::kVar: *out = vars_[i.imm[0]]; break;
      case Code::kSpecial:
        *out = i.imm[0] == static_cast<int64_t>(Grid::kBlock) ? block_ : thread;
        break;
      case Code::kBuffer: break;
      case Code::kAlloc:
        if (!IsShared(n)) {
          OwnMemory& own = t.memories[memory_[n]];
          own.bytes.resize(i.imm[1] * ByteWidth(i.dtype));
          own.written.assign(i.imm[1], 0);
        }
        break;
      case Code::kLoop: {
        *out = 0;
        t.limits[n] = i.src.empty() ? i.imm[0] : std::min(i.imm[0], r[place_[i.src[0]]]);
        if (t.limits[n] <= 0) t.pc = partner_[n] + 1;
        break;
      }
      case Code::kEnd: {
        const ValueId loop = partner_[n];
        if (++r[place_[loop]] < t.limits[loop]) t.pc = loop + 1;
        break;
      }
      case Code::kIf:
        if (r[place_[i.src[0]]] == 0) t.pc = partner_[n] + 1;
        break;
      case Code::kEndIf: break;
      case Code::kAlu: Arithmetic(n, thread); break;
      case Code::kCast:
      case Code::kBitcast: {
        const DType from = at(i.src[0]).dtype;
        if (at(i.src[0]).lanes != i.lanes) {
          BitcastLanes(n, thread);
          break;
        }
        Into(a_, from, &r[place_[i.src[0]]], i.lanes);
        c_.Resize(i.dtype, i.lanes);
        if (i.code == Code::kCast) {
          reference::CastTile(from, i.dtype, a_, c_);
        } else {
          reference::BitcastTile(from, i.dtype, a_, c_);
        }
        From(c_, i.dtype, out, i.lanes);
        break;
      }
      case Code::kLanes:
        for (int lane = 0; lane < i.lanes; ++lane)
          out[lane] = r[place_[i.src[i.src.size() == 1 ? 0 : lane]]];
        break;
      case Code::kLane: *out = r[place_[i.src[0]] + i.imm[0]]; break;
      case Code::kLoad: Load(n, thread); break;
      case Code::kStore: Store(n, thread); break;
      case Code::kBarrier:
        --t.pc;
        t.state = State::kAtBarrier;
        break;
      case Code::kMma:
        --t.pc;
        t.state = State::kAtMma;
        break;
      case Code::kCopy: Begin(n, thread); break;
      case Code::kCommit: t.groups.push_back(std::exchange(t.begun, {})); break;
      case Code::kWait: Wait(i.imm[0], thread); break;
      case Code::kDot: Dot(n, thread); break;
      case Code::kTileZero:
        if (char* const tile = TileOf(n, i.src[0], thread, false))
          std::fill_n(tile, kTileSide * kTileSide * ByteWidth(at(i.src[0]).dtype), 0);
        break;
      case Code::kTileLoad:
      case Code::kTileStore: MoveTile(n, thread); break;
      case Code::kTileDot: MultiplyTiles(n, thread); break;
    }
  }

  const Program& program_;
  std::span<std::string> buffers_;
  std::span<const int64_t> vars_;
  int64_t steps_;
  std::mt19937_64 random_;
  std::vector<int64_t> place_;    // of a value among the registers
  std::vector<ValueId> partner_;  // of what opens a scope and what closes it
  std::vector<int> memory_;       // of an ALLOC
  int64_t registers_ = 0, blocks_ = 1, block_ = 0;
  int memories_ = 0, thread_count_ = 1;
  int32_t epoch_ = 0;
  std::vector<Thread> threads_;
  std::vector<OwnMemory> shared_;
  std::vector<std::vector<Touched>> touched_;  // by slot
  reference::LaneBlock a_, b_, c_;
  RunReport outcome_;
};

}  // namespace

std::string_view Name(Fault fault) {
  static constexpr std::string_view kNames[] = {
      "none", "race", "uninitialised read", "access out of range", "divergence", "too long"};
  return kNames[static_cast<size_t>(fault)];
}

RunReport Interpret(const Program& program, std::span<std::string> buffers,
                    std::span<const int64_t> vars, const RunOptions& options) {
  return Interpreter(program, buffers, vars, options).Run();
}

}  // namespace outboard::program
