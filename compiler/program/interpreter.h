// The interpreter's state (interpret.h). Its parts: interpret.cc, the order of threads and their
// steps; interpret_memory.cc, who touches what; interpret_warpgroups.cc, what is of sm_90a.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/program/interpret.h"
#include "compiler/program/interpret_hopper.h"
#include "compiler/program/interpret_lanes.h"
#include "compiler/program/interpret_matrix.h"
#include "compiler/program/interpret_plan.h"
#include "compiler/program/program.h"

namespace outboard::program {

class Interpreter {
 public:
  Interpreter(const Program& program, std::span<std::string> buffers, std::span<const int64_t> vars,
              const RunOptions& options);

  RunReport Run();

 private:
  // Who has touched an element. What happens between two barriers is an epoch; epochs are numbered
  // through all blocks, so that one before the block's first is another block's. 0: nobody.
  struct Shadow {
    uint32_t write_epoch = 0, read_epoch = 0;
    uint16_t write_thread = 0, read_thread = 0;
    bool many_readers = false, many_reading_blocks = false;
    bool arriving = false;  // a copy is on its way
  };

  // A memory as one thread sees it.
  struct Memory {
    char* bytes = nullptr;
    int64_t elements = 0;
    DType dtype = DType::kVoid;
    int width = 0;
    Shadow* shadows = nullptr;  // null: nobody else can write or nobody else can access it
    // By element: the generation that wrote it. Each ALLOC begins a new one, in which nothing is
    // written. Null: all of it is.
    uint32_t* written = nullptr;
    uint32_t generation = 1;
    // Of sm_90a: the first element's number among those of the block, -1 unless it is shared;
    // whether a product holds an element of private memory, and whether it was stored to since
    // the last WGFENCE.
    int64_t first = -1;
    uint8_t* holds = nullptr;

    char* Address(int64_t element) const { return bytes + element * width; }
  };

  // One that a thread has begun.
  struct Copy {
    const ThreadStep* step;
    int64_t to, from;
    bool zeros;  // its mask is false
    bool arrived;
  };

  enum class State { kRunning, kAtBarrier, kAtCluster, kAtMma, kAtGroup, kAtWait, kDone };

  // What Memory::holds says of an element.
  static constexpr uint8_t kFree = 0, kUnfenced = 1, kHeld = 2;

  struct Thread {
    int32_t pc = 0;
    State state = State::kRunning;
    std::vector<Copy> begun;                // since the last COMMIT
    std::vector<std::vector<Copy>> groups;  // oldest first
  };

  // Of all blocks of a cluster, which run as one: block by block.
  int thread_count() const { return static_cast<int>(threads_.size()); }
  int RankOf(int thread) const { return thread / block_threads_; }
  int InBlock(int thread, int64_t rank) const {
    return static_cast<int>(rank) * block_threads_ + thread % block_threads_;
  }
  int64_t* RegistersOf(int thread) { return registers_.data() + plan_.registers * thread; }
  Memory& MemoryOf(int32_t number, int thread) {
    return memories_[plan_.memories.size() * thread + number];
  }

  // Without a write, or with a single thread, there is no race.
  bool HasShadows(const ProgramMemory& buffer) const;
  void AddMemory(const ProgramMemory& memory, int thread, std::span<std::string> buffers);
  // Returns false, for returning it.
  bool Report(Fault fault, ValueId n, int thread, const std::string& what);

  // ---- the order of threads
  void NextEpoch();
  void RunBlock();
  void MakeReady(int thread);
  // Nobody can go on alone. Returns false where the block is done, or stuck.
  bool PassTogether();
  // Returns whether these threads are all at the same place.
  bool AreAt(State state, int first, int count) const;
  bool PassBarriers();
  void GoOn(int thread);
  void Shuffle(const ThreadStep& step, int first, int warp);
  WarpRegisters WarpOf(int first);
  // LDMATRIX. Its threads read for each other, so that a thread's own store must be behind a
  // barrier, too: a row counts as read by two of them.
  bool LoadMatrices(const ThreadStep& step, int first);

  // ---- who has touched what
  bool InRange(const Memory& memory, int64_t element, const ThreadStep& step, int thread);
  bool Race(const ThreadStep& step, int thread, int64_t element, std::string_view what);
  // These return false where a fault was reported.
  bool Fine(const Finding& found, const ThreadStep& step, int thread, int64_t element);
  bool TouchToRead(const Memory& memory, int64_t element, const ThreadStep& step, int thread);
  bool TouchToWrite(const Memory& memory, int64_t element, const ThreadStep& step, int thread);
  bool MayRead(const Memory& memory, int64_t element, const ThreadStep& step, int thread);
  bool MayWrite(const Memory& memory, int64_t element, const ThreadStep& step, int thread);
  bool Load(const ThreadStep& step, int thread, int64_t* r);
  bool Store(const ThreadStep& step, int thread, const int64_t* r);

  // ---- copies
  void Move(const Copy& copy, int thread);
  bool Begin(const ThreadStep& step, int thread, const int64_t* r);
  void Wait(int64_t but, int thread);

  // ---- tiles
  using Tile = std::array<int64_t, kTileSide * kTileSide>;
  bool ReadTile(const Memory& tile, const ThreadStep& step, int thread, Tile& out);
  void WriteTile(const Memory& tile, const Tile& values);
  // TILELOAD and TILESTORE.
  bool MoveTile(const ThreadStep& step, int thread, const int64_t* r);
  bool TileDot(const ThreadStep& step, int thread);

  // ---- sm_90a
  const Instruction& InstructionOf(const ThreadStep& step) const { return program_.code[step.at]; }
  int32_t SourceOf(const ThreadStep& step, size_t source) const {
    return plan_.lane_places[step.src[0] + source];
  }
  // What no thread can do alone, and what happens beside them. Returns false where nothing can.
  bool AdvanceHopper();
  void WakeWaiting() {
    for (const int t : hopper_->TakeWoken()) MakeReady(t);
  }
  // A step of one thread.
  bool HopperStep(const ThreadStep& step, int thread, int64_t* r);
  bool LoadOfCluster(const ThreadStep& step, int thread, int64_t* r);
  // Returns whether a block's threads are still there.
  bool IsThere(int64_t rank, const ThreadStep& step, int thread);
  bool BeginBox(const ThreadStep& step, int thread, const int64_t* r, int64_t barrier);
  // The same to or from the memory of one block of the cluster.
  bool BeginBoxIn(int64_t rank, const ThreadStep& step, int thread, const int64_t* r,
                  int64_t barrier);
  // A step of all threads of a warpgroup. Returns false where they have to wait.
  bool PassGroup(int group);
  template <class Visit>
  void ForAccumulators(const ThreadStep& step, int group, const Visit& visit);
  bool MultiplyGroup(const ThreadStep& step, int group);
  bool HoldOperand(const ThreadStep& step, int group);
  // Rows of 8, as GroupOperands::a.
  std::vector<double> NumbersInRegisters(const ThreadStep& step, int first);
  void ComputeGroup(const ThreadStep& step, int first,
                    const std::array<std::vector<int64_t>, 2>& places);

  // ---- steps
  // The pure ones.
  void Compute(const ThreadStep& s, int thread, int64_t* r);
  // Runs a thread until it has made `slice` steps that are visible to others, cannot go on alone,
  // or has a fault.
  void RunThread(int thread, int64_t slice);

  const Program& program_;
  const Plan plan_;
  std::span<const int64_t> vars_;
  int64_t steps_max_, steps_left_;
  std::mt19937_64 random_;
  int64_t blocks_ = 1, block_ = 0;  // of a cluster: its first one
  int block_threads_ = 1;
  uint32_t epoch_ = 0, first_epoch_ = 0;
  std::vector<Thread> threads_;
  std::vector<int> ready_;  // threads that can go on
  std::vector<int64_t> registers_;
  std::vector<Memory> memories_;  // by thread and number
  std::vector<char> private_bytes_, shared_bytes_;
  std::vector<uint32_t> private_written_, shared_written_;
  std::vector<Shadow> shared_shadows_;
  std::vector<std::vector<Shadow>> buffer_shadows_;  // by slot
  // Of sm_90a; null where the program has nothing of it.
  std::unique_ptr<HopperBlock> hopper_;
  std::vector<uint8_t> holds_;  // as private_written_
  std::vector<int> at_group_;   // by warpgroup: threads that wait for the others of it
  std::map<std::pair<int, int32_t>, int64_t> held_by_;  // by warpgroup and memory: last group
  RunReport outcome_;
};

}  // namespace outboard::program
