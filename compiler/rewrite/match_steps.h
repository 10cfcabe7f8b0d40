// A pattern as the checks that are left when its root's operation and the operations of the root's
// sources are known to fit (matcher.h): a short list without branches, run from left to right.
//
// Threads: immutable once made. Errors: none.
#pragma once

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

// What the index of a Matcher can say of a constant. A number of a pattern that is none of these is
// checked by a step.
enum class ConstantClass : uint8_t { kZero, kOne, kMinusOne, kMinusZero, kOther };
inline constexpr int kConstantClasses = 5;
ConstantClass ClassOfConstant(const UOp* constant);
// That of the number at a node of kind kInt or kFloatBits, in every type that can hold it.
ConstantClass ClassOfNumber(const PatternNode& number);

class MatchSteps {
 public:
  // `pattern` with the operands of commutative operations in one of their orders.
  explicit MatchSteps(const Pattern& pattern);

  // Whether `root` matches; then the names are bound. `match.root` is not touched.
  bool Run(const UOp* root, Match& match) const {
    std::array<const UOp*, kPlacesMax> places;
    places[0] = root;
    for (const Step& step : steps_)
      if (!Do(step, places, match)) return false;
    return true;
  }

 private:
  static constexpr int kPlacesMax = 12;  // nodes of a match that have sources of their own

  struct Step {
    enum class Kind : uint8_t {
      kOperation,     // it is of `op`; kept as a place if it has sources in the pattern
      kConstant,      // it is any constant
      kNumber,        // it is the constant `number`
      kName,          // it is bound to `name`
      kSameName,      // it is what `name` is bound to
      kConstantName,  // it is a constant of an integer type or bool, and bound to `name`
    };
    Kind kind;
    Op op;
    uint8_t place;  // whose source it is
    uint8_t source;
    uint8_t made;    // its own place; 0: none
    int8_t sources;  // how many sources it must have; 0: as many as it likes
    int8_t name;
    PatternNode::Kind number_kind;
    int64_t number;
  };

  void Add(const Pattern& pattern, int at, uint8_t place, uint8_t source, uint32_t& bound);
  static bool Do(const Step& step, std::array<const UOp*, kPlacesMax>& places, Match& match);

  absl::InlinedVector<Step, 4> steps_;
  uint8_t places_ = 1;
};

}  // namespace outboard
