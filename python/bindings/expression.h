// Arithmetic on Variables that are not bound: sums, products, quotients and remainders of them, and
// comparisons. They have bounds and a text; a Variable is bound in them by substitute(). Python's
// semantics: quotients are rounded down.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/tensor/variable.h"

namespace outboard::python {

struct Atom;

// A sum: constant + factor * atom + ..., each atom once. Immutable.
class Expression {
 public:
  Expression() = default;
  Expression(int64_t number) : constant_(number) {}  // NOLINT
  Expression(const Variable& variable);              // NOLINT
  // A bound one as it would be if its variables were not bound.
  explicit Expression(const SymInt& size);

  bool is_number() const { return terms_.empty(); }
  int64_t constant() const { return constant_; }
  // The least and the greatest value; between them may be some that it has not. Raises
  // OverflowError where they are beyond int64.
  std::pair<int64_t, int64_t> Bounds() const;
  std::string Render() const;  // as tinygrad does: (n*2+1)
  // With what `values`, a dict, has for variables or their names in place of these. Numbers, other
  // expressions, or bound Variables: then of all. Raises ValueError.
  nanobind::object Substitute(const nanobind::dict& values) const;
  std::vector<Variable> Variables() const;  // each once

  friend Expression operator+(const Expression& a, const Expression& b);
  friend Expression operator*(const Expression& a, const Expression& b);
  // Raise ZeroDivisionError if b can be 0.
  friend Expression FloorDivide(const Expression& a, const Expression& b);
  friend Expression Remainder(const Expression& a, const Expression& b);
  friend bool operator==(const Expression& a, const Expression& b);

 private:
  struct Term {
    std::shared_ptr<const Atom> atom;
    int64_t factor;
  };

  explicit Expression(Atom atom);
  void Add(const Term& term);
  // The terms whose factor is a multiple of `number`, divided by it, and the others.
  std::pair<Expression, Expression> SplitBy(int64_t number) const;
  bool is_sum() const { return terms_.size() > 1 || (constant_ != 0 && !terms_.empty()); }
  std::string Operand() const;  // in parentheses where it is a sum
  void Collect(std::vector<Variable>& variables) const;
  nanobind::object ValueWith(const nanobind::dict& values) const;
  static nanobind::object ValueOf(const Atom& atom, const nanobind::dict& values);

  std::vector<Term> terms_;  // in the order in which they were written
  int64_t constant_ = 0;
};

// Binds Expression, and the operators of Variable.
void BindExpression(nanobind::module_& module, nanobind::class_<Variable>& variable);

// Why a Variable, or what is made of such, is no number as long as it is not bound; "" of anything
// else.
std::string WhyUnbound(nanobind::handle object);

}  // namespace outboard::python
