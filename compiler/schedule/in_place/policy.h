// Which temporaries are written over others (compiler/schedule/in_place.h). A choice of whoever
// makes schedules; what is computed has the same bits with each.
#pragma once

namespace outboard::schedule {

enum class OverwritePolicy {
  kNever,
  kLarge,  // those that are much of the arena, where it becomes smaller
  kAll,    // for tests
};

}  // namespace outboard::schedule
