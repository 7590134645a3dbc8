// einsum and its special cases, in terms of dot_general, transposes and sums.
#include <postern/arrange.h>
#include <postern/products.h>

#include <map>

#include "core/lists.h"
#include "core/text.h"
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

/// A label for each axis: a letter, or a negative number for one of an ellipsis, counted from the
/// ellipsis's end, where shapes broadcast: "a..." of rank 3 is 'a', -2, -1.
using Labels = std::vector<int>;

struct Term {
  Tensor tensor;
  Labels labels;
};

bool has(const Labels& labels, int label) {
  return std::ranges::find(labels, label) != labels.end();
}
std::int64_t axis_of(const Labels& labels, int label) {
  return std::ranges::find(labels, label) - labels.begin();
}

/// Reads the labels of `text`, a part of `spec` like "ij...", whose ellipsis stands for `hidden`
/// axes.
Labels read_labels(std::string_view text, std::int64_t hidden, std::string_view spec) {
  Labels labels;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "...") {
      for (std::int64_t k = hidden; k > 0; --k) labels.push_back(static_cast<int>(-k));
      i += 2;  // the other two points
      continue;
    }
    const auto letter = static_cast<unsigned char>(text[i]);
    check(std::isalpha(letter) != 0,
          "einsum: \"{}\" may have letters, commas, \"...\" and \"->\" only", spec);
    labels.push_back(letter);
  }
  return labels;
}

std::int64_t letters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](unsigned char c) { return std::isalpha(c) != 0; });
}

std::string in_words(int label) {
  if (label < 0) return "an axis of the \"...\"";
  return fmt::format("the letter '{}'", static_cast<char>(label));
}
std::string axes_text(std::int64_t n) { return n == 1 ? "1 axis" : fmt::format("{} axes", n); }

struct Sum {
  std::vector<Term> terms;
  Labels result;
};

/// Returns the labels of a result that is not written: those of the ellipsis, then letters that
/// come once, in alphabetical order.
Labels implied_result(const std::vector<Term>& terms) {
  std::map<int, int> count;
  for (const Term& t : terms)
    for (int label : t.labels) ++count[label];
  Labels result;
  for (const auto& [label, times] : count)
    if (label < 0 || times == 1) result.push_back(label);
  return result;
}

/// Refuses results that name a label twice, or one that no operand has.
void check_result(const Sum& sum, std::string_view spec) {
  for (int label : sum.result) {
    check(std::ranges::count(sum.result, label) == 1, "einsum: the result of \"{}\" has {} twice",
          spec, in_words(label));
    check(std::ranges::any_of(sum.terms, [&](const Term& t) { return has(t.labels, label); }),
          "einsum: the result of \"{}\" has {}, which no operand has", spec, in_words(label));
  }
}

/// Reads "ij,jk->ik" for operands of these ranks; refuses labels that do not fit them.
Sum parse(std::string_view spec, TensorSpan operands) {
  constexpr std::size_t none = std::string_view::npos;
  const std::size_t arrow = spec.find("->");
  std::string_view left = spec.substr(0, arrow);  // operands that are not read yet
  const auto written = size_of(std::ranges::count(left, ',')) + 1;
  Sum sum;
  std::int64_t most_hidden = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::size_t comma = left.find(',');
    check((comma == none) == (i + 1 == operands.size()), "einsum: \"{}\" is of {}, given are {}",
          spec, plural(written, "operand"), operands.size());
    const std::string_view text = left.substr(0, comma);
    const std::int64_t hidden = operands[i].rank() - letters_in(text);
    const bool has_ellipsis = text.find("...") != none;
    check(text.find("...") == text.rfind("..."), "einsum: \"{}\" of \"{}\" has \"...\" twice", text,
          spec);
    check(has_ellipsis ? hidden >= 0 : hidden == 0,
          "einsum: \"{}\" of \"{}\" names {}, operand {}, {}, has {}", text, spec,
          axes_text(letters_in(text)), i, to_string(operands[i].type()), operands[i].rank());
    sum.terms.push_back({operands[i], read_labels(text, hidden, spec)});
    most_hidden = std::max(most_hidden, hidden);
    if (comma != none) left.remove_prefix(comma + 1);
  }
  if (arrow == none) {
    sum.result = implied_result(sum.terms);
  } else {
    sum.result = read_labels(spec.substr(arrow + 2), most_hidden, spec);
    check_result(sum, spec);
  }
  return sum;
}

/// Takes those labels out of a term's of which goes(label, axis) is true, and returns their axes.
template <class Goes>
Dims take_out(Labels& labels, const Goes& goes) {
  Dims axes;
  Labels kept;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (goes(labels[i], i))
      axes.push_back(static_cast<std::int64_t>(i));
    else
      kept.push_back(labels[i]);
  }
  labels = std::move(kept);
  return axes;
}

/// Drops axes of extent 1 whose label is longer elsewhere, as they broadcast; refuses labels that
/// have two other extents.
void drop_stretched(std::vector<Term>& terms, std::string_view spec) {
  std::map<int, std::int64_t> extents;
  for (const Term& term : terms)
    for (std::size_t i = 0; i < term.labels.size(); ++i) {
      std::int64_t& extent = extents.try_emplace(term.labels[i], 1).first->second;
      const std::int64_t own = term.tensor.dims()[i];
      check(own == 1 || extent == 1 || own == extent,
            "einsum: {} of \"{}\" has two extents, {} and {}", in_words(term.labels[i]), spec,
            extent, own);
      if (own != 1) extent = own;
    }
  for (Term& term : terms) {
    const Dims dropped = take_out(term.labels, [&](int label, std::size_t axis) {
      return term.tensor.dims()[axis] == 1 && extents[label] != 1;
    });
    term.tensor = squeeze(term.tensor, dropped);
  }
}

/// Takes the diagonal of two axes of one label, as in "ii", until no label comes twice. `diagonal`
/// puts the new axis last.
void take_diagonals(Term& term) {
  Labels& labels = term.labels;
  for (std::size_t i = 0; i < labels.size();) {
    const int label = labels[i];
    const auto again = std::find(nth(labels, i) + 1, labels.end(), label);
    if (again == labels.end()) {
      ++i;
      continue;
    }
    term.tensor = diagonal(term.tensor, 0, static_cast<std::int64_t>(i), again - labels.begin());
    labels.erase(again);
    labels.erase(nth(labels, i));  // at i there is another label now
    labels.push_back(label);
  }
}

/// Sums over the axes whose labels are not `needed`.
void sum_unneeded(Term& term, const Labels& needed) {
  const Dims axes =
      take_out(term.labels, [&](int label, std::size_t) { return !has(needed, label); });
  if (axes.empty()) return;
  Tensor (*total)(const Operand&, const ReduceOptions&) = sum;
  if (term.tensor.dtype() == DType::pred) total = any;  // as products of them are
  term.tensor = total(term.tensor, {.axes = axes});
}

/// Multiplies two terms. Labels that both have are batch axes when they are `needed` still, else
/// they are contracted.
Term contracted(const Term& x, const Term& y, const Labels& needed) {
  DotAxes axes;
  Labels result, own_x;
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    const int label = x.labels[i];
    if (!has(y.labels, label)) {
      own_x.push_back(label);
      continue;
    }
    const auto in_x = static_cast<std::int64_t>(i);
    if (has(needed, label)) {
      axes.batch_x.push_back(in_x);
      axes.batch_y.push_back(axis_of(y.labels, label));
      result.push_back(label);
    } else {
      axes.contract_x.push_back(in_x);
      axes.contract_y.push_back(axis_of(y.labels, label));
    }
  }
  result.insert(result.end(), own_x.begin(), own_x.end());
  for (int label : y.labels)
    if (!has(x.labels, label)) result.push_back(label);
  return {dot_general(x.tensor, y.tensor, axes), result};
}

/// Counts the elements of the product of two terms less those of the terms, which the product
/// replaces: what contracting them costs in memory.
double growth(const Term& x, const Term& y, const Labels& needed) {
  double size = 1;
  for (std::size_t i = 0; i < x.labels.size(); ++i)
    if (has(needed, x.labels[i])) size *= static_cast<double>(x.tensor.dims()[i]);
  for (std::size_t i = 0; i < y.labels.size(); ++i)
    if (has(needed, y.labels[i]) && !has(x.labels, y.labels[i]))
      size *= static_cast<double>(y.tensor.dims()[i]);
  return size - static_cast<double>(x.tensor.size()) - static_cast<double>(y.tensor.size());
}

/// Returns the labels that the result needs, or a term other than these two.
Labels needed_beyond(const Sum& sum, std::size_t a, std::size_t b) {
  Labels needed = sum.result;
  for (std::size_t i = 0; i < sum.terms.size(); ++i)
    if (i != a && i != b)
      needed.insert(needed.end(), sum.terms[i].labels.begin(), sum.terms[i].labels.end());
  return needed;
}

/// Contracts the pair whose product is smallest compared to what it replaces.
void contract_one(Sum& sum) {
  std::size_t best_a = 0, best_b = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t a = 0; a < sum.terms.size(); ++a)
    for (std::size_t b = a + 1; b < sum.terms.size(); ++b) {
      const double cost = growth(sum.terms[a], sum.terms[b], needed_beyond(sum, a, b));
      if (!(cost < least)) continue;
      least = cost;
      best_a = a;
      best_b = b;
    }
  Term product =
      contracted(sum.terms[best_a], sum.terms[best_b], needed_beyond(sum, best_a, best_b));
  sum.terms.erase(nth(sum.terms, best_b));
  sum.terms[best_a] = std::move(product);
}

}  // namespace

Tensor einsum(std::string_view spec, TensorSpan operands, Place place) {
  PlaceScope scope(place);
  check(!operands.empty(), "einsum: at least one operand is needed");
  Type type = operands[0].type();
  for (const Tensor& t : operands) type = promote("einsum", type, t.type());
  Tensors same;
  for (const Tensor& t : operands) same.push_back(convert_to(t, type.dtype));
  Sum sum = parse(spec, same);
  drop_stretched(sum.terms, spec);
  for (std::size_t i = 0; i < sum.terms.size(); ++i) {
    take_diagonals(sum.terms[i]);
    sum_unneeded(sum.terms[i], needed_beyond(sum, i, i));
  }
  while (sum.terms.size() > 1) contract_one(sum);
  const Term& only = sum.terms[0];
  Dims order;
  for (int label : sum.result) order.push_back(axis_of(only.labels, label));
  return transpose(only.tensor, order);
}

Tensor dot(const Operand& operand_x, const Operand& operand_y) {
  PlaceScope scope(operand_x.place());
  const Tensor &x = operand_x.tensor(), &y = operand_y.tensor();
  if (x.rank() == 0 || y.rank() == 0) return multiply(operand_x, operand_y);
  return dot_general(operand_x, operand_y,
                     {{x.rank() - 1}, {std::max<std::int64_t>(y.rank() - 2, 0)}, {}, {}});
}

Tensor outer(const Operand& x, const Operand& y) {
  PlaceScope scope(x.place());
  return dot_general(reshape(x, {-1}), reshape(y, {-1}), {});
}

Tensor tensordot(const Operand& x, const Operand& y, const Dims& axes_x, const Dims& axes_y) {
  PlaceScope scope(x.place());
  check(axes_x.size() == axes_y.size(), "tensordot: axes must come in pairs, got {} and {}",
        dims_to_string(axes_x), dims_to_string(axes_y));
  return dot_general(x, y, {axes_x, axes_y, {}, {}});
}

Tensor tensordot(const Operand& x, const Operand& y, std::int64_t axes) {
  PlaceScope scope(x.place());
  const std::int64_t rank = x.tensor().rank();
  check(axes >= 0 && axes <= rank && axes <= y.tensor().rank(),
        "tensordot: {} axes are more than {} or {} has", axes, to_string(x.tensor().type()),
        to_string(y.tensor().type()));
  return tensordot(x, y, range(rank - axes, rank), range(0, axes));
}

}  // namespace postern
