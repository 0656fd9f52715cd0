/* Names of files that are not finished yet: made, and told from others. */
#include "../../src/random_name.h"

#include "../check.h"
#include "unit.h"

void unit_random_names(void) {
  char name[RANDOM_NAME_BYTES];
  random_name(name);
  CHECK(random_name_is(name));
  CHECK(random_name_is(".perdure-0123456789abcdef"));
  CHECK(!random_name_is(".perdure-0123456789abcde") && !random_name_is(".perdure-0123456789abcdef0"));
  CHECK(!random_name_is(".perdure-0123456789abcdeX") && !random_name_is("perdure-0123456789abcdef"));
  CHECK(!random_name_is("") && !random_name_is(".perdure-"));
}
