// Attributes: look-up and printing.
#include <postern/attributes.h>

#include "core/check.h"
#include "core/text.h"

namespace postern {
using namespace internal;

namespace {
constexpr const char* type_names[] = {
    "bool",           "int64",           "double",           "string",
    "vector of bool", "vector of int64", "vector of double", "vector of string"};

std::string show(bool b) { return bool_text(b); }
std::string show(std::int64_t i) { return std::to_string(i); }
std::string show(double d) { return fmt::format("{}", d); }
std::string show(const std::string& s) { return internal::quoted(s); }
template <class T>
std::string show(const std::vector<T>& items) {
  Separator comma;
  std::string text = "[";
  for (std::size_t i = 0; i < items.size(); ++i)  // of bools, too, which have no references
    text += fmt::format("{}{}", comma(), show(static_cast<const T&>(items[i])));
  return text + "]";
}
}  // namespace

Attributes::Attributes() = default;
Attributes::Attributes(std::initializer_list<Item> items) {
  for (const Item& item : items) set(item.name, item.value);
}
Attributes::Attributes(const Attributes& other) = default;
Attributes::Attributes(Attributes&& other) noexcept = default;
Attributes& Attributes::operator=(const Attributes& other) = default;
Attributes& Attributes::operator=(Attributes&& other) noexcept = default;
Attributes::~Attributes() = default;

bool Attributes::has(std::string_view name) const { return items_.contains(name); }
void Attributes::set(std::string name, Attribute value) {
  items_.insert_or_assign(std::move(name), std::move(value));
}
bool Attributes::operator==(const Attributes& other) const = default;

std::string to_string(const Attribute& value) {
  return std::visit([](const auto& v) { return show(v); }, value);
}

std::string to_string(const Attributes& attributes) {
  Separator comma;
  std::string text = "{";
  for (const auto& [name, value] : attributes.items())
    text += fmt::format("{}{} = {}", comma(), word_or_quoted(name), to_string(value));
  return text + "}";
}

void detail::throw_attribute_number(std::uint64_t number) {
  throw_type_error(
      fmt::format("an attribute's integer must fit in 63 bits and a sign, got {}", number));
}
void detail::throw_attribute_null() { throw_type_error("an attribute's text is a null pointer"); }

const Attribute& Attributes::find(std::string_view name, Place place) const {
  const auto found = items_.find(name);
  if (found == items_.end()) {
    PlaceScope at(place);
    throw_type_error(
        fmt::format("attribute '{}' is not there; there are {}", name, to_string(*this)));
  }
  return found->second;
}

void Attributes::wrong_type(std::string_view name, const Attribute& has, const Attribute& asked,
                            Place place) {
  PlaceScope at(place);
  throw_type_error(fmt::format("attribute '{}' is a {}, asked for as {}", name,
                               type_names[has.index()], type_names[asked.index()]));
}

}  // namespace postern
