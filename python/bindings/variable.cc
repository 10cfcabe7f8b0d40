// Variables, and the sizes that are made of bound ones.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "client/lazy/sym_expression.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/expression.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// Python rounds down, sizes round towards zero: the same for what can be a size.
void CheckDivision(const SymInt& a, const SymInt& b) {
  if (a.value() < 0 || b.value() <= 0)
    throw nb::value_error("sizes are divided from zero on, by what is above zero");
}

nb::object Unbind(const SymInt& size) {
  if (size.is_number() || !size.expression()->variable)
    throw nb::value_error("only a bound variable itself can be unbound");
  return nb::make_tuple(size.expression()->variable->variable, size.value());
}

std::string SizeRepr(const SymInt& size) {
  if (size.is_number()) return absl::StrCat(size.value());
  const internal::SymExpression& e = *size.expression();
  if (e.variable) return absl::StrCat(e.variable->variable.name(), "=", size.value());
  return absl::StrCat(Expression(size).Render(), "=", size.value());
}

// Of one value, made in one way of variables that are bound alike.
bool IsSame(const SymInt& a, const SymInt& b) {
  if (a.value() != b.value() || a.is_number() != b.is_number()) return false;
  if (a.expression() == b.expression()) return true;
  const internal::SymExpression &x = *a.expression(), &y = *b.expression();
  if (x.variable && y.variable) return x.variable->variable == y.variable->variable;
  return !x.variable && !y.variable && x.op == y.op && IsSame(x.a, y.a) && IsSame(x.b, y.b);
}

// Whatever else stands beside a SymInt is asked in its turn: a Tensor knows sizes.
template <typename Operation>
void BindOperator(nb::class_<SymInt>& size, const char* name, const char* reflected,
                  Operation operation) {
  size.def(name, operation, nb::is_operator());
  size.def(
      name, [=](const SymInt& a, int64_t b) { return operation(a, SymInt(b)); }, nb::is_operator());
  size.def(
      reflected, [=](const SymInt& a, int64_t b) { return operation(SymInt(b), a); },
      nb::is_operator());
}

template <typename Order>
void BindOrder(nb::class_<SymInt>& size, const char* name, Order order) {
  size.def(
      name, [=](const SymInt& a, const SymInt& b) { return order(a.value(), b.value()); },
      nb::is_operator());
  size.def(
      name, [=](const SymInt& a, int64_t b) { return order(a.value(), b); }, nb::is_operator());
}

}  // namespace

void BindVariable(nb::module_& module) {
  nb::class_<Variable> variable(
      module, "Variable",
      "A size that changes from run to run of what is compiled once: of vmin to vmax, both of "
      "them. What is computed with it\nbefore it is bound is an Expression.\nValueError: an empty "
      "range.");
  variable
      .def(
          "__init__",
          [](Variable* self, const std::string& name, int64_t min_val, int64_t max_val,
             const DTypeArgument&) { new (self) Variable(name, min_val, max_val, Here()); },
          "name"_a, "min_val"_a, "max_val"_a, "dtype"_a = nb::none())
      .def(
          "bind", [](const Variable& v, int64_t val) { return v.bind(val, Here()); }, "val"_a,
          "ValueError: not in the range.")
      .def_prop_ro("expr", [](const Variable& v) { return v.name(); })
      .def_prop_ro("name", [](const Variable& v) { return v.name(); })
      .def_prop_ro("vmin", [](const Variable& v) { return v.min(); })
      .def_prop_ro("vmax", [](const Variable& v) { return v.max(); })
      .def(
          "__eq__", [](const Variable& a, const Variable& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const Variable& v) { return nb::hash(nb::cast(v.name())); })
      .def("__repr__", [](const Variable& v) {
        return absl::StrCat("Variable(", v.name(), ", ", v.min(), ", ", v.max(), ")");
      });
  BindExpression(module, variable);
  nb::class_<SymInt> size(
      module, "SymInt",
      "A bound Variable, or what such and numbers come to.\nTwo are equal if they "
      "have one value and are the same expression of the same variables; none "
      "equals a number:\nask `.val`. `<` and its like compare values, also with numbers.");
  size.def_prop_ro("val", &SymInt::value, "What it is here and now.")
      .def("unbind", &Unbind, "The Variable and its value.")
      .def_prop_ro("vmin", [](const SymInt& a) { return Expression(a).Bounds().first; })
      .def_prop_ro("vmax", [](const SymInt& a) { return Expression(a).Bounds().second; })
      .def(
          "render", [](const SymInt& a) { return Expression(a).Render(); },
          "Without the values: (n+1).")
      .def(
          "__eq__", [](const SymInt& a, const SymInt& b) { return IsSame(a, b); },
          nb::is_operator())
      .def("__hash__", [](const SymInt& a) { return nb::hash(nb::int_(a.value())); })
      .def("__repr__", &SizeRepr);
  BindOperator(size, "__add__", "__radd__", [](const SymInt& a, const SymInt& b) { return a + b; });
  BindOperator(size, "__sub__", "__rsub__", [](const SymInt& a, const SymInt& b) { return a - b; });
  BindOperator(size, "__mul__", "__rmul__", [](const SymInt& a, const SymInt& b) { return a * b; });
  BindOperator(size, "__floordiv__", "__rfloordiv__", [](const SymInt& a, const SymInt& b) {
    CheckDivision(a, b);
    return a / b;
  });
  BindOperator(size, "__mod__", "__rmod__", [](const SymInt& a, const SymInt& b) {
    CheckDivision(a, b);
    return a % b;
  });
  BindOrder(size, "__lt__", std::less<>());
  BindOrder(size, "__le__", std::less_equal<>());
  BindOrder(size, "__gt__", std::greater<>());
  BindOrder(size, "__ge__", std::greater_equal<>());
  size.def("__neg__", [](const SymInt& a) { return a * SymInt(-1); });
}

}  // namespace outboard::python
