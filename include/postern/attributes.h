// Attributes: static values that go with a named host function or a block, kept in the program.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace postern {

/// One attribute's value.
using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<bool>, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>>;

/// Attributes by name. `{{"factor", 3.0}, {"axes", std::vector<std::int64_t>{0, 1}}}`.
class Attributes {
 public:
  struct Item {
    std::string name;
    Attribute value;
    Item(std::string key, bool v) : name(std::move(key)), value(v) {}
    Item(std::string key, int v) : name(std::move(key)), value(std::int64_t{v}) {}
    Item(std::string key, std::int64_t v) : name(std::move(key)), value(v) {}
    Item(std::string key, double v) : name(std::move(key)), value(v) {}
    Item(std::string key, const char* v) : name(std::move(key)), value(std::string(v)) {}
    Item(std::string key, std::string v) : name(std::move(key)), value(std::move(v)) {}
    Item(std::string key, Attribute v) : name(std::move(key)), value(std::move(v)) {}
  };

  Attributes() = default;
  Attributes(std::initializer_list<Item> items) {
    for (const Item& item : items) set(item.name, item.value);
  }

  /// The value of that name and type; throws TypeError naming the attribute, the type asked for and the type it has.
  template <class T>
  const T& get(std::string_view name) const {
    const Attribute& value = find(name);
    if (const T* found = std::get_if<T>(&value)) return *found;
    wrong_type(name, value, Attribute(T{}));
  }
  bool has(std::string_view name) const { return items_.find(name) != items_.end(); }
  void set(std::string name, Attribute value) { items_.insert_or_assign(std::move(name), std::move(value)); }
  const std::map<std::string, Attribute, std::less<>>& items() const { return items_; }
  bool operator==(const Attributes&) const = default;

 private:
  const Attribute& find(std::string_view name) const;
  [[noreturn]] static void wrong_type(std::string_view name, const Attribute& has, const Attribute& asked);
  std::map<std::string, Attribute, std::less<>> items_;
};

std::string to_string(const Attribute& value);        // 3, 3.5, "text", [1, 2]
std::string to_string(const Attributes& attributes);  // {factor = 3.5}

}  // namespace postern
