#include "compiler/program/hopper/gather.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/program/hopper/ring.h"

namespace outboard::program {
namespace {

constexpr int64_t kChunkBytes = 16;
// Pieces whose elements are loaded before the first one is stored: 16 loads of a thread. With 32,
// registers do not suffice where a step of 64 has 64 different places.
constexpr int64_t kPiecesTogether = 2;

// 16 bytes of a stage: its first element there, and in the operand.
struct GatherPiece {
  ValueId place, row, k;
};

class StageGatherer {
 public:
  StageGatherer(ProgramBuilder& b, const GatheredStage& stage, const GatherPlaces& places,
                const GatherFrom& from, ValueId thread)
      : b_(b),
        stage_(stage),
        places_(places),
        from_(from),
        thread_(thread),
        chunk_(kChunkBytes / ByteWidth(stage.dtype)),
        depth_(DepthOf(stage.dtype)) {}

  void Run() {
    const int64_t pieces = stage_.rows * depth_ / chunk_ / kWarpgroupThreads;
    if (stage_.run > 1) {
      for (int64_t number = 0; number < pieces; ++number) Copy(PieceOf(b_.Int(number)));
      return;
    }
    const int64_t together = std::min(kPiecesTogether, pieces);
    const ValueId round = b_.Loop(pieces / together);
    std::vector<std::pair<ValueId, ValueId>> loaded;  // place and value
    for (int64_t i = 0; i < together; ++i) {
      const GatherPiece piece = PieceOf(b_.Plus(b_.Times(round, together), b_.Int(i)));
      loaded.emplace_back(piece.place, Load(piece));
    }
    for (const auto& [place, value] : loaded)
      b_.Add({.code = Code::kStore,
              .lanes = static_cast<int>(chunk_),
              .src = {stage_.shared, place, value},
              .imm = {1, 0, 0}});
    b_.End(round);
  }

 private:
  // Threads side by side store 16 bytes of eight rows, or all of a row: no bank twice. What differs
  // between a thread's pieces is whole patterns of the swizzle, unless neighbouring threads
  // have neighbouring rows.
  GatherPiece PieceOf(ValueId number) {
    const int64_t in_line = depth_ / chunk_, lines = kWarpgroupThreads / in_line;
    const ValueId line = b_.Divide(thread_, in_line), in_row = b_.Modulo(thread_, in_line);
    const ValueId own = InStage(line, in_row);
    if (stage_.along_rows) {  // of 64 rows, all k; then of the next ones
      const int64_t of_box = depth_ / lines;
      const ValueId box = b_.Divide(number, of_box);
      const ValueId later = b_.Times(b_.Modulo(number, of_box), lines);
      return {InMemory(b_.Plus(b_.Times(box, depth_ * depth_), b_.Times(later, depth_)), own),
              b_.Plus(from_.row, b_.Plus(b_.Times(box, depth_), b_.Times(in_row, chunk_))),
              b_.Plus(from_.k, b_.Plus(line, later))};
    }
    if (stage_.rows_in_lanes) {
      const int64_t rows = std::min<int64_t>(stage_.rows, kWarpgroupThreads);
      const int64_t beside = kWarpgroupThreads / rows, of_rows = in_line / beside;
      const ValueId row =
          b_.Plus(b_.Modulo(thread_, rows), b_.Times(b_.Divide(number, of_rows), rows));
      const ValueId chunk =
          b_.Plus(b_.Divide(thread_, rows), b_.Times(b_.Modulo(number, of_rows), beside));
      return {b_.Plus(from_.first, InStage(row, chunk)), b_.Plus(from_.row, row),
              b_.Plus(from_.k, b_.Times(chunk, chunk_))};
    }
    const ValueId later = b_.Times(number, lines);
    return {InMemory(b_.Times(later, depth_), own), b_.Plus(from_.row, b_.Plus(line, later)),
            b_.Plus(from_.k, b_.Times(in_row, chunk_))};
  }
  ValueId InStage(ValueId line, ValueId in_row) {
    return b_.Plus(b_.Times(line, depth_), b_.Times(in_row, chunk_));
  }
  ValueId InMemory(ValueId patterns, ValueId own) {
    return b_.Plus(b_.Plus(from_.first, patterns), own);
  }

  GatheredPlace PlaceOf(const GatherPiece& piece, int64_t element) {
    const ValueId on = b_.Int(element);
    return places_(from_.batch, stage_.along_rows ? b_.Plus(piece.row, on) : piece.row,
                   stage_.along_rows ? piece.k : b_.Plus(piece.k, on));
  }

  void Copy(const GatherPiece& piece) {
    for (int64_t element = 0; element < chunk_; element += stage_.run) {
      const GatheredPlace place = PlaceOf(piece, element);
      Instruction copy{
          .code = Code::kCopy,
          .src = {stage_.shared, b_.Plus(piece.place, b_.Int(element)), place.buffer, place.index},
          .imm = {stage_.run, 1, 1}};
      if (place.inside >= 0) copy.src.push_back(place.inside);
      b_.Add(std::move(copy));
    }
  }

  ValueId Load(const GatherPiece& piece) {
    Instruction all{.code = Code::kLanes, .dtype = stage_.dtype, .lanes = static_cast<int>(chunk_)};
    for (int64_t element = 0; element < chunk_; ++element) {
      const GatheredPlace place = PlaceOf(piece, element);
      Instruction load{
          .code = Code::kLoad, .dtype = stage_.dtype, .src = {place.buffer, place.index}};
      if (place.inside >= 0) {
        load.src.push_back(place.inside);
        load.src.push_back(b_.Const(stage_.dtype, 0));
      }
      all.src.push_back(b_.Add(std::move(load)));
    }
    return b_.Add(std::move(all));
  }

  ProgramBuilder& b_;
  const GatheredStage& stage_;
  const GatherPlaces& places_;
  const GatherFrom& from_;
  const ValueId thread_;
  const int64_t chunk_, depth_;  // elements of 16 bytes; k of a stage
};

}  // namespace

void GatherStage(ProgramBuilder& b, const GatheredStage& stage, const GatherPlaces& places,
                 const GatherFrom& from, ValueId thread) {
  StageGatherer(b, stage, places, from, thread).Run();
}

}  // namespace outboard::program
