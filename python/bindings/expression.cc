#include "python/bindings/expression.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lazy/sym_expression.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

enum class Kind { kVariable, kProduct, kQuotient, kRemainder };

// A term without its factor: a variable, or what is no sum.
struct Atom {
  Kind kind;
  std::optional<Variable> variable;
  Expression a, b;

  friend bool operator==(const Atom&, const Atom&) = default;
};

namespace {

using Wide = __int128;
using WideRange = std::pair<Wide, Wide>;

int64_t Fit(Wide value) {
  if (value >= INT64_MIN && value <= INT64_MAX) return static_cast<int64_t>(value);
  PyErr_SetString(PyExc_OverflowError, "an expression of Variables goes beyond int64");
  throw nb::python_error();
}

Wide FloorOf(Wide a, Wide b) {
  const Wide quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

WideRange Corners(WideRange a, WideRange b, Wide (*function)(Wide, Wide)) {
  const auto [low, high] = std::minmax({function(a.first, b.first), function(a.first, b.second),
                                        function(a.second, b.first), function(a.second, b.second)});
  return {low, high};
}

WideRange BoundsOf(const Atom& atom) {
  if (atom.kind == Kind::kVariable) return {atom.variable->min(), atom.variable->max()};
  const WideRange a = atom.a.Bounds(), b = atom.b.Bounds();
  if (atom.kind == Kind::kProduct) return Corners(a, b, [](Wide x, Wide y) { return x * y; });
  if (atom.kind == Kind::kQuotient) return Corners(a, b, FloorOf);
  const Wide turns = FloorOf(a.first, b.first);
  if (b.first == b.second && turns == FloorOf(a.second, b.first))
    return {a.first - turns * b.first, a.second - turns * b.first};
  return b.first > 0 ? WideRange(0, b.second - 1) : WideRange(b.first + 1, 0);
}

void CheckDivisor(const Expression& b) {
  const auto [low, high] = b.Bounds();
  if (low > 0 || high < 0) return;
  PyErr_SetString(PyExc_ZeroDivisionError,
                  absl::StrCat("a division by ", b.Render(), ", which can be 0").c_str());
  throw nb::python_error();
}

// a < b, or, `negated`, that it is not.
struct Condition {
  Expression a, b;
  bool negated;

  std::optional<bool> Known() const {
    const auto [low, high] = (a + b * Expression(-1)).Bounds();
    if (high < 0) return !negated;
    if (low >= 0) return negated;
    return std::nullopt;
  }

  std::string Render() const {
    if (const std::optional<bool> known = Known()) return *known ? "True" : "False";
    const std::string less = absl::StrCat("(", a.Render(), "<", b.Render(), ")");
    return negated ? absl::StrCat("(", less, "!=True)") : less;
  }
};

// Numbers on one side: v + 1 < 3 is v < 2.
Condition Less(const Expression& a, const Expression& b, bool negated = false) {
  if (b.is_number()) return {a + Expression(-a.constant()), b + Expression(-a.constant()), negated};
  if (a.is_number()) return {a + Expression(-b.constant()), b + Expression(-b.constant()), negated};
  return {a, b, negated};
}

std::string NamesOf(const std::vector<Variable>& variables) {
  return absl::StrJoin(variables, ", ", [](std::string* text, const Variable& variable) {
    absl::StrAppend(text, variable.name());
  });
}

std::string WhyUnbound(const Expression& e) {
  if (e.is_number()) return "";
  const std::vector<Variable> variables = e.Variables();
  const std::string& name = variables[0].name();
  if (e == Expression(variables[0]))
    return absl::StrCat("Variable ", name, " is not bound; ", name, ".bind(value) is a number");
  return absl::StrCat(e.Render(), " has no value, since ", NamesOf(variables),
                      " is not bound; bind first, as in ", name, ".bind(value) + 1");
}

}  // namespace

// ---- sums ---------------------------------------------------------------------------------------

Expression::Expression(Atom atom) {
  terms_.push_back({std::make_shared<const Atom>(std::move(atom)), 1});
}

Expression::Expression(const Variable& variable)
    : Expression(Atom{Kind::kVariable, variable, {}, {}}) {}

Expression::Expression(const SymInt& size) {
  if (size.is_number()) {
    constant_ = size.value();
    return;
  }
  const internal::SymExpression& e = *size.expression();
  if (e.variable) {
    *this = Expression(e.variable->variable);
    return;
  }
  const Expression a(e.a), b(e.b);
  switch (e.op) {
    case Op::kAdd: *this = a + b; break;
    case Op::kMul: *this = a * b; break;
    case Op::kIDiv: *this = FloorDivide(a, b); break;
    default: *this = Remainder(a, b);
  }
}

void Expression::Add(const Term& term) {
  const auto same = std::ranges::find_if(
      terms_, [&](const Term& t) { return t.atom == term.atom || *t.atom == *term.atom; });
  if (same == terms_.end()) {
    terms_.push_back(term);
    return;
  }
  same->factor = Fit(Wide{same->factor} + term.factor);
  if (same->factor == 0) terms_.erase(same);
}

Expression operator+(const Expression& a, const Expression& b) {
  Expression sum = a;
  for (const Expression::Term& term : b.terms_) sum.Add(term);
  sum.constant_ = Fit(Wide{a.constant_} + b.constant_);
  return sum;
}

Expression operator*(const Expression& a, const Expression& b) {
  if (!a.is_number() && !b.is_number()) return Expression(Atom{Kind::kProduct, {}, a, b});
  const int64_t factor = a.is_number() ? a.constant_ : b.constant_;
  Expression product = a.is_number() ? b : a;
  product.constant_ = Fit(Wide{product.constant_} * factor);
  for (Expression::Term& term : product.terms_) term.factor = Fit(Wide{term.factor} * factor);
  if (factor == 0) product.terms_.clear();
  return product;
}

std::pair<Expression, Expression> Expression::SplitBy(int64_t number) const {
  Expression whole, rest;
  for (const Term& term : terms_) {
    if (term.factor % number == 0)
      whole.Add({term.atom, Fit(Wide{term.factor} / number)});
    else
      rest.Add(term);
  }
  whole.constant_ = Fit(FloorOf(constant_, number));
  rest.constant_ = Fit(constant_ - Wide{whole.constant_} * number);
  return {whole, rest};
}

Expression FloorDivide(const Expression& a, const Expression& b) {
  CheckDivisor(b);
  if (!b.is_number()) return Expression(Atom{Kind::kQuotient, {}, a, b});
  const auto [whole, rest] = a.SplitBy(b.constant_);
  const auto [low, high] = rest.Bounds();
  const Wide least = FloorOf(low, b.constant_);
  if (least == FloorOf(high, b.constant_)) return whole + Expression(Fit(least));
  return Expression(Atom{Kind::kQuotient, {}, rest, b}) + whole;
}

Expression Remainder(const Expression& a, const Expression& b) {
  CheckDivisor(b);
  if (!b.is_number()) return Expression(Atom{Kind::kRemainder, {}, a, b});
  const Expression rest = a.SplitBy(b.constant_).second;
  const auto [low, high] = rest.Bounds();
  if (FloorOf(low, b.constant_) == 0 && FloorOf(high, b.constant_) == 0) return rest;
  return Expression(Atom{Kind::kRemainder, {}, rest, b});
}

bool operator==(const Expression& a, const Expression& b) {
  return a.constant_ == b.constant_ && a.terms_.size() == b.terms_.size() &&
         std::ranges::all_of(a.terms_, [&](const Expression::Term& x) {
           return std::ranges::any_of(b.terms_, [&](const Expression::Term& y) {
             return x.factor == y.factor && (x.atom == y.atom || *x.atom == *y.atom);
           });
         });
}

std::pair<int64_t, int64_t> Expression::Bounds() const {
  Wide low = constant_, high = constant_;
  for (const Term& term : terms_) {
    const auto [least, greatest] = BoundsOf(*term.atom);
    low += Fit(term.factor < 0 ? greatest : least) * Wide{term.factor};
    high += Fit(term.factor < 0 ? least : greatest) * Wide{term.factor};
  }
  return {Fit(low), Fit(high)};
}

std::string Expression::Operand() const {
  std::vector<std::string> parts;
  for (const auto& [atom, factor] : terms_) {
    const auto of = [&](const char* sign) {
      return absl::StrCat(atom->a.Operand(), sign, atom->b.Render());
    };
    std::string text;
    switch (atom->kind) {
      case Kind::kVariable: text = atom->variable->name(); break;
      case Kind::kProduct: text = of("*"); break;
      case Kind::kQuotient: text = of("//"); break;
      case Kind::kRemainder: text = of("%"); break;
    }
    parts.push_back(factor == 1 ? text : absl::StrCat(text, "*", factor));
  }
  if (constant_ != 0 || parts.empty()) parts.push_back(absl::StrCat(constant_));
  return is_sum() ? absl::StrCat("(", absl::StrJoin(parts, "+"), ")") : parts[0];
}

std::string Expression::Render() const {
  const bool is_name = is_number() || (terms_.size() == 1 && terms_[0].factor == 1 &&
                                       terms_[0].atom->kind == Kind::kVariable);
  return is_name || is_sum() ? Operand() : absl::StrCat("(", Operand(), ")");
}

void Expression::Collect(std::vector<Variable>& variables) const {
  for (const Term& term : terms_) {
    if (term.atom->variable &&
        std::ranges::find(variables, *term.atom->variable) == variables.end())
      variables.push_back(*term.atom->variable);
    term.atom->a.Collect(variables);
    term.atom->b.Collect(variables);
  }
}

std::vector<Variable> Expression::Variables() const {
  std::vector<Variable> variables;
  Collect(variables);
  return variables;
}

// ---- with values --------------------------------------------------------------------------------

nb::object Expression::ValueOf(const Atom& atom, const nb::dict& values) {
  if (atom.kind == Kind::kVariable) {
    for (const nb::object& key : {nb::cast(*atom.variable), nb::cast(atom.variable->name())})
      if (values.contains(key)) return values[key];
    return nb::cast(*atom.variable);
  }
  const nb::object a = atom.a.ValueWith(values), b = atom.b.ValueWith(values);
  switch (atom.kind) {
    case Kind::kProduct: return a * b;
    case Kind::kQuotient: return nb::steal(PyNumber_FloorDivide(a.ptr(), b.ptr()));
    default: return nb::steal(PyNumber_Remainder(a.ptr(), b.ptr()));
  }
}

nb::object Expression::ValueWith(const nb::dict& values) const {
  nb::object sum = nb::int_(constant_);
  for (const auto& [atom, factor] : terms_) {
    nb::object value = ValueOf(*atom, values);
    if (!value.is_valid()) throw nb::python_error();
    if (factor != 1) value = value * nb::int_(factor);
    sum = constant_ == 0 && &atom == &terms_[0].atom ? value : sum + value;
  }
  return sum;
}

nb::object Expression::Substitute(const nb::dict& values) const {
  bool is_bound = false;
  for (const auto& [key, value] : values) is_bound = is_bound || nb::isinstance<SymInt>(value);
  for (const Variable& variable : Variables())
    if (is_bound && !values.contains(nb::cast(variable)) &&
        !values.contains(nb::cast(variable.name())))
      throw nb::value_error(absl::StrCat("bind ", variable.name(), " too").c_str());
  return ValueWith(values);
}

std::string WhyUnbound(nb::handle object) {
  if (nb::isinstance<Variable>(object))
    return WhyUnbound(Expression(*nb::inst_ptr<Variable>(object)));
  if (nb::isinstance<Expression>(object)) return WhyUnbound(*nb::inst_ptr<Expression>(object));
  return "";
}

// ---- in Python ----------------------------------------------------------------------------------

namespace {

[[noreturn]] void RaiseUnbound(const Expression& e) {
  throw nb::value_error(WhyUnbound(e).c_str());
}

int64_t NumberOf(const Expression& e) {
  const auto [low, high] = e.Bounds();
  if (low != high) RaiseUnbound(e);
  return low;
}

// What stands beside an expression.
using Other = std::variant<int64_t, Variable, Expression>;

Expression SumOf(const Other& other) {
  return std::visit([](const auto& x) { return Expression(x); }, other);
}

// Both ways round. What is bound has a value, and what is not has none.
template <typename T, typename Operation>
void BindOperator(nb::class_<T>& type, const char* name, const char* reflected,
                  Operation operation) {
  const auto with_bound = [](const T& a, const SymInt&) -> Expression { RaiseUnbound(a); };
  type.def(
          name, [=](const T& a, const Other& b) { return operation(Expression(a), SumOf(b)); },
          nb::is_operator())
      .def(name, with_bound, nb::is_operator());
  if (reflected == nullptr) return;
  type.def(
          reflected, [=](const T& a, const Other& b) { return operation(SumOf(b), Expression(a)); },
          nb::is_operator())
      .def(reflected, with_bound, nb::is_operator());
}

}  // namespace

template <typename T>
void BindArithmetic(nb::class_<T>& type) {
  using E = Expression;
  BindOperator(type, "__add__", "__radd__", [](const E& a, const E& b) { return a + b; });
  BindOperator(type, "__sub__", "__rsub__", [](const E& a, const E& b) { return a + b * E(-1); });
  BindOperator(type, "__mul__", "__rmul__", [](const E& a, const E& b) { return a * b; });
  BindOperator(type, "__floordiv__", "__rfloordiv__", &FloorDivide);
  BindOperator(type, "__mod__", "__rmod__", &Remainder);
  BindOperator(type, "__lt__", nullptr, [](const E& a, const E& b) { return Less(a, b); });
  BindOperator(type, "__gt__", nullptr, [](const E& a, const E& b) { return Less(b, a); });
  BindOperator(type, "__le__", nullptr, [](const E& a, const E& b) { return Less(b, a, true); });
  BindOperator(type, "__ge__", nullptr, [](const E& a, const E& b) { return Less(a, b, true); });
  type.def("__neg__", [](const T& a) { return E(a) * E(-1); })
      .def("__index__", [](const T& a) { return NumberOf(E(a)); })
      .def("__int__", [](const T& a) { return NumberOf(E(a)); })
      .def("__float__", [](const T& a) { return static_cast<double>(NumberOf(E(a))); })
      .def(
          "render", [](const T& a) { return E(a).Render(); }, "Its text: (n*2+1).")
      .def(
          "variables", [](const T& a) { return E(a).Variables(); },
          "The Variables that it is made of.")
      .def(
          "substitute", [](const T& a, const nb::dict& dvars) { return E(a).Substitute(dvars); },
          "dvars"_a,
          "With numbers, expressions or bound Variables in place of Variables. ValueError where "
          "some are bound only.")
      .def(
          "sym_infer",
          [](const T& a, const nb::dict& var_vals) { return E(a).Substitute(var_vals); },
          "var_vals"_a, "Its value, where the dict has the values of the Variables' names.");
}

void BindExpression(nb::module_& module, nb::class_<Variable>& variable) {
  nb::class_<Expression> expression(
      module, "Expression",
      "A sum, product, quotient or remainder of Variables that are not bound. It has a range and "
      "a text, and a value once\nit is computed from what `bind` gives: `n.bind(3) * 2 + 1`, or "
      "`(n * 2 + 1).substitute({n: n.bind(3)})`.");
  nb::class_<Condition> condition(
      module, "Condition",
      "A comparison of expressions of Variables. ValueError for asking whether it is true where "
      "that depends on the Variables.");
  expression.def_prop_ro("vmin", [](const Expression& e) { return e.Bounds().first; })
      .def_prop_ro("vmax", [](const Expression& e) { return e.Bounds().second; })
      .def(
          "__eq__", [](const Expression& a, const Expression& b) { return a == b; },
          nb::is_operator())
      .def("__hash__",  // not of the order of the terms
           [](const Expression& e) {
             return nb::hash(nb::make_tuple(e.constant(), e.Variables().size()));
           })
      .def("__bool__", [](const Expression& e) { return NumberOf(e) != 0; })
      .def("__repr__", &Expression::Render);
  condition.def_prop_ro("vmin", [](const Condition& c) { return c.Known().value_or(false); })
      .def_prop_ro("vmax", [](const Condition& c) { return c.Known().value_or(true); })
      .def("__bool__",
           [](const Condition& c) {
             if (const std::optional<bool> known = c.Known()) return *known;
             throw nb::value_error(
                 absl::StrCat(c.Render(),
                              " depends on variables that are not bound; compare what "
                              "bind(value) gives")
                     .c_str());
           })
      .def("render", &Condition::Render)
      .def("__repr__", &Condition::Render);
  BindArithmetic(expression);
  BindArithmetic(variable);
}

}  // namespace outboard::python
