// A file of rewrites, as a worker with VIZ=1 writes it.
#pragma once

#include <string>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/support/temp_folder.h"
#include "worker/compile/rewrite_log.h"

namespace outboard::test {

// Two plans: the sums of rows of 6 that are padded by one on each side, and a product. Its path.
inline std::string RecordTwoPrograms(const TempFolder& folder) {
  {
    const auto log = worker::MakeRewriteLog(folder.path());
    const RecordedThread thread(log.get());
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {Dim(4), Dim(6)});
    const UOp* const padded = Pad(g, x, {0, 0, 1, 1});
    ValueOrDie(
        schedule::MakeSchedule(g, Sink(g, {Reduce(g, Op::kAdd, padded, {1})}), TestTarget()));
    Graph h;
    const UOp* const y = Param(h, 0, DType::kF32, {Dim(8)});
    ValueOrDie(schedule::MakeSchedule(h, Sink(h, {Mul(h, y, y)}), TestTarget()));
  }
  return ValueOrDie(worker::NewestLog(folder.path()));
}

}  // namespace outboard::test
