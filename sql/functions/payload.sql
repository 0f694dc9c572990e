-- Payloads against the schema of their kind: a subset of JSON Schema, draft 2020-12.
--
-- Checked: type, enum, const; minimum, maximum, exclusiveMinimum, exclusiveMaximum,
-- multipleOf; minLength, maxLength (characters), pattern (an advanced regular expression of
-- PostgreSQL, not of ECMAScript; not anchored); prefixItems, items, minItems, maxItems,
-- uniqueItems, contains; required, properties, patternProperties, additionalProperties,
-- propertyNames, minProperties, maxProperties; allOf, anyOf, oneOf, not, if, then, else;
-- $ref to "#" or "#/…" of the same document; schemas that are true or false.
-- Accepted and without effect: format, title, description, default, examples, deprecated,
-- readOnly, writeOnly, contentEncoding, contentMediaType, $schema, $id, $comment, $defs,
-- definitions, and names that start with "x-".
-- schema_issues names everything else, so that a manifest with it can be refused.
--
-- Numbers are compared as numeric, exactly. Of a member that is given twice the last counts.
-- A schema can follow a payload down for some 100 levels.
-- Issues are [{"path": JSON pointer, "message"}], at most 20, and never quote a value. The
-- functions below the two entry points run with the search path of those.

-- payload_issues(kind, payload): what is wrong with a payload by the schema of its kind, or
-- null when nothing is or the kind has no schema. A schema compares characters: a payload
-- with text that PostgreSQL cannot hold (\u0000, half of a surrogate pair) never matches.
-- Never raises: one payload, or one schema, must not hold up a claim of others.
create or replace function outbox.payload_issues(kind text, payload json)
	returns json language plpgsql stable
	set search_path = pg_catalog, pg_temp
	set jit = off -- guessed row counts bring it on
as $$
declare
	schema constant jsonb := (select k.payload_schema from outbox.kind k
		where k.name = payload_issues.kind);
	document jsonb;
begin
	if schema is null then
		return null;
	end if;
	begin
		document := payload::jsonb;
	exception
		when untranslatable_character or invalid_text_representation
			or numeric_value_out_of_range then
			return outbox.first_issues(outbox.unreadable_issues(payload::text));
	end;
	begin
		return outbox.first_issues(outbox.value_issues(schema, schema, document, '', '{}'));
	exception
		when statement_too_complex then -- max_stack_depth
			return outbox.first_issues(outbox.issue('', 'is nested too deeply to be checked'));
		when others then -- a schema that nobody showed to schema_issues
			return outbox.first_issues(outbox.issue('', 'cannot be checked: ' || sqlerrm));
	end;
end $$;

-- schema_issues(schema): what is malformed or not supported in a payload schema, or null.
create or replace function outbox.schema_issues(schema json)
	returns json language plpgsql stable
	set search_path = pg_catalog, pg_temp
	set jit = off
as $$
declare
	root jsonb;
begin
	begin
		root := schema::jsonb;
	exception
		when untranslatable_character or invalid_text_representation
			or numeric_value_out_of_range then
			return outbox.first_issues(outbox.unreadable_issues(schema::text));
	end;
	return outbox.first_issues(outbox.subschema_issues(root, root, '') || outbox.loop_issues(root));
end $$;

create or replace function outbox.issue(path text, message text) returns jsonb
	language sql immutable parallel safe
	as $$ select jsonb_build_array(jsonb_build_object('path', left(path, 500),
		'message', left(message, 500))) $$;

create or replace function outbox.first_issues(issues jsonb) returns json
	language sql immutable parallel safe
	as $$ select nullif(jsonb_path_query_array(issues, '$[0 to 19]'), '[]')::json $$;

-- pointer(path, name): the JSON pointer of a member or element below path.
create or replace function outbox.pointer(path text, name text) returns text
	language sql immutable parallel safe
	as $$ select path || '/' || replace(replace(name, '~', '~0'), '/', '~1') $$;

-- at_ref(root, ref): what a reference like "#/$defs/name" leads to, or null.
create or replace function outbox.at_ref(root jsonb, ref text) returns jsonb
	language sql immutable parallel safe
	as $$ select case when ref = '#' then root when ref like '#/%' then root #> array(
		select replace(replace(p.part, '~1', '/'), '~0', '~')
		from unnest(string_to_array(substr(ref, 3), '/')) with ordinality p (part, n)
		order by p.n) end $$;

-- ---- a value against a schema

-- value_issues(root, schema, value, path, refs): the issues of a value that stands at path.
-- root: the document in which references are looked up; refs: those that led from this
-- value's first schema to this one.
create or replace function outbox.value_issues(
	root jsonb, schema jsonb, value jsonb, path text, refs text[])
	returns jsonb language plpgsql stable
as $$
declare
	issues jsonb;
begin
	if schema = 'true' then
		return '[]';
	elsif schema = 'false' then
		return outbox.issue(path, 'is not allowed');
	end if;
	issues := outbox.general_issues(schema, value, path);
	case jsonb_typeof(value)
		when 'number' then
			issues := issues || outbox.number_issues(schema, (value #>> '{}')::numeric, path);
		when 'string' then
			issues := issues || outbox.string_issues(schema, value #>> '{}', path);
		when 'array' then
			issues := issues || outbox.array_issues(root, schema, value, path);
		when 'object' then
			issues := issues || outbox.object_issues(root, schema, value, path);
		else null; -- true, false and null have no keywords of their own
	end case;
	return issues || outbox.combined_issues(root, schema, value, path, refs);
end $$;

create or replace function outbox.general_issues(schema jsonb, value jsonb, path text)
	returns jsonb language plpgsql stable
as $$
declare
	type constant text := jsonb_typeof(value);
	wanted constant jsonb := schema -> 'type'; -- a name or an array of names
	issues jsonb := '[]';
begin
	if not wanted ? type and not (wanted ? 'integer' and type = 'number'
		and (value #>> '{}')::numeric % 1 = 0)
	then
		issues := outbox.issue(path, format('must be of type %s, not %s',
			translate(wanted::text, '[]"', ''), type));
	end if;
	if schema ? 'const' and value <> schema -> 'const' then
		issues := issues || outbox.issue(path, 'is not the one value that is allowed');
	end if;
	if schema ? 'enum' and not exists (
		select from jsonb_array_elements(schema -> 'enum') e (item) where e.item = value)
	then
		issues := issues || outbox.issue(path, 'is not one of the values that are allowed');
	end if;
	return issues;
end $$;

create or replace function outbox.number_issues(schema jsonb, value numeric, path text)
	returns jsonb language plpgsql stable
as $$
declare
	issues jsonb := '[]';
begin
	if value < (schema ->> 'minimum')::numeric then
		issues := issues || outbox.issue(path, 'must be at least ' || (schema ->> 'minimum'));
	end if;
	if value > (schema ->> 'maximum')::numeric then
		issues := issues || outbox.issue(path, 'must be at most ' || (schema ->> 'maximum'));
	end if;
	if value <= (schema ->> 'exclusiveMinimum')::numeric then
		issues := issues || outbox.issue(path,
			'must be greater than ' || (schema ->> 'exclusiveMinimum'));
	end if;
	if value >= (schema ->> 'exclusiveMaximum')::numeric then
		issues := issues || outbox.issue(path,
			'must be less than ' || (schema ->> 'exclusiveMaximum'));
	end if;
	if value % (schema ->> 'multipleOf')::numeric <> 0 then
		issues := issues || outbox.issue(path,
			'must be a multiple of ' || (schema ->> 'multipleOf'));
	end if;
	return issues;
end $$;

create or replace function outbox.string_issues(schema jsonb, value text, path text)
	returns jsonb language plpgsql stable
as $$
declare
	issues jsonb := '[]';
begin
	if char_length(value) < (schema ->> 'minLength')::numeric then
		issues := issues || outbox.issue(path,
			format('must have at least %s characters', schema ->> 'minLength'));
	end if;
	if char_length(value) > (schema ->> 'maxLength')::numeric then
		issues := issues || outbox.issue(path,
			format('must have at most %s characters', schema ->> 'maxLength'));
	end if;
	if value !~ (schema ->> 'pattern') then
		issues := issues || outbox.issue(path,
			format('must match the pattern %s', schema ->> 'pattern'));
	end if;
	return issues;
end $$;

create or replace function outbox.array_issues(
	root jsonb, schema jsonb, value jsonb, path text)
	returns jsonb language plpgsql stable
as $$
declare
	total constant integer := jsonb_array_length(value);
	prefix constant integer := coalesce(jsonb_array_length(schema -> 'prefixItems'), 0);
	item record;
	issues jsonb := '[]';
begin
	if total < (schema ->> 'minItems')::numeric then
		issues := issues || outbox.issue(path,
			format('must have at least %s items', schema ->> 'minItems'));
	end if;
	if total > (schema ->> 'maxItems')::numeric then
		issues := issues || outbox.issue(path,
			format('must have at most %s items', schema ->> 'maxItems'));
	end if;
	if schema -> 'uniqueItems' = 'true' and total > (
		select count(distinct e.value) from jsonb_array_elements(value) e)
	then
		issues := issues || outbox.issue(path, 'must not have equal items');
	end if;
	if schema ? 'contains' and not exists (
		select from jsonb_array_elements(value) e
		where outbox.value_issues(root, schema -> 'contains', e.value, '', '{}') = '[]')
	then
		issues := issues || outbox.issue(path, 'must contain a certain item and does not');
	end if;
	for item in
		select e.n - 1 as n, e.value, case when e.n <= prefix
			then schema -> 'prefixItems' -> (e.n - 1)::integer else schema -> 'items' end as schema
		from jsonb_array_elements(value) with ordinality e (value, n)
		where e.n <= prefix or schema ? 'items'
	loop
		exit when jsonb_array_length(issues) >= 20;
		issues := issues || outbox.value_issues(root, item.schema, item.value,
			path || '/' || item.n, '{}');
	end loop;
	return issues;
end $$;

create or replace function outbox.object_issues(
	root jsonb, schema jsonb, value jsonb, path text)
	returns jsonb language plpgsql stable
as $$
declare
	total numeric;
	missing text;
	member record;
	issues jsonb := '[]';
begin
	if schema ? 'minProperties' or schema ? 'maxProperties' then
		select count(*) into total from jsonb_object_keys(value);
		if total < (schema ->> 'minProperties')::numeric then
			issues := issues || outbox.issue(path,
				format('must have at least %s properties', schema ->> 'minProperties'));
		end if;
		if total > (schema ->> 'maxProperties')::numeric then
			issues := issues || outbox.issue(path,
				format('must have at most %s properties', schema ->> 'maxProperties'));
		end if;
	end if;
	for missing in
		select r.name from jsonb_array_elements_text(schema -> 'required') r (name)
		where not value ? r.name
	loop
		issues := issues || outbox.issue(path, format('must have the property "%s"', missing));
	end loop;
	if schema ?| array['properties', 'patternProperties', 'additionalProperties', 'propertyNames'] then
		for member in select m.key, m.value from jsonb_each(value) m loop
			exit when jsonb_array_length(issues) >= 20;
			issues := issues || outbox.member_issues(root, schema, member.key, member.value,
				outbox.pointer(path, member.key));
		end loop;
	end if;
	return issues;
end $$;

-- member_issues(…): of one member of an object, which stands at path.
create or replace function outbox.member_issues(
	root jsonb, schema jsonb, name text, value jsonb, path text)
	returns jsonb language plpgsql stable
as $$
declare
	known boolean := schema -> 'properties' ? name;
	matching jsonb;
	issues jsonb := '[]';
begin
	if outbox.value_issues(root, coalesce(schema -> 'propertyNames', 'true'), to_jsonb(name),
		'', '{}') <> '[]'
	then
		issues := outbox.issue(path, 'has a name that is not allowed');
	end if;
	if known then
		issues := issues || outbox.value_issues(root, schema -> 'properties' -> name, value,
			path, '{}');
	end if;
	for matching in
		select p.value from jsonb_each(schema -> 'patternProperties') p where name ~ p.key
	loop
		known := true;
		issues := issues || outbox.value_issues(root, matching, value, path, '{}');
	end loop;
	if known is not true and schema ? 'additionalProperties' then
		issues := issues || outbox.value_issues(root, schema -> 'additionalProperties', value,
			path, '{}');
	end if;
	return issues;
end $$;

-- combined_issues(…): of the keywords that apply further schemas to the same value.
create or replace function outbox.combined_issues(
	root jsonb, schema jsonb, value jsonb, path text, refs text[])
	returns jsonb language plpgsql stable
as $$
declare
	ref constant text := schema ->> '$ref';
	part jsonb;
	branch text;
	issues jsonb := '[]';
begin
	if ref = any (refs) then
		return outbox.issue(path, format('cannot be checked: the schema at "%s" refers to itself', ref));
	elsif ref is not null then
		issues := outbox.value_issues(root, outbox.at_ref(root, ref), value, path, refs || ref);
	end if;
	for part in select p.value from jsonb_array_elements(schema -> 'allOf') p loop
		issues := issues || outbox.value_issues(root, part, value, path, refs);
	end loop;
	if schema ? 'anyOf' and outbox.matches(root, schema -> 'anyOf', value, refs) = 0 then
		issues := issues || outbox.issue(path, 'matches none of the alternatives');
	end if;
	if schema ? 'oneOf' then
		case outbox.matches(root, schema -> 'oneOf', value, refs)
			when 0 then issues := issues || outbox.issue(path, 'matches none of the alternatives');
			when 1 then null;
			else issues := issues || outbox.issue(path, 'matches more than one of the alternatives');
		end case;
	end if;
	if schema ? 'not' and outbox.value_issues(root, schema -> 'not', value, '', refs) = '[]' then
		issues := issues || outbox.issue(path, 'matches what is excluded');
	end if;
	if schema ? 'if' then
		branch := case when outbox.value_issues(root, schema -> 'if', value, '', refs) = '[]'
			then 'then' else 'else' end;
		issues := issues || outbox.value_issues(root, coalesce(schema -> branch, 'true'), value,
			path, refs);
	end if;
	return issues;
end $$;

-- matches(root, schemas, value, refs): how many of these schemas the value matches.
create or replace function outbox.matches(root jsonb, schemas jsonb, value jsonb, refs text[])
	returns bigint language sql stable
	as $$ select count(*) from jsonb_array_elements(schemas) s
	where outbox.value_issues(root, s.value, matches.value, '', refs) = '[]' $$;

-- unreadable_issues(document): which strings and names of a JSON text jsonb cannot hold.
-- The bad escapes are marked; then the marks are looked up.
create or replace function outbox.unreadable_issues(document text)
	returns jsonb language plpgsql volatile
as $$
declare
	mark constant text := gen_random_uuid();
	marked jsonb;
begin
	begin
		marked := replace(outbox.mark_escapes(document, mark), mark || '.', '');
	exception when others then
		return outbox.issue('', 'cannot be read: ' || sqlerrm);
	end;
	return coalesce((
		with recursive node (path, name, value) as (
			select '', '', marked
			union all
			select outbox.pointer(n.path, c.name), c.name, c.value
			from node n cross join lateral (
				select m.key, m.value from jsonb_each(
					case jsonb_typeof(n.value) when 'object' then n.value end) m
				union all
				select (e.n - 1)::text, e.value from jsonb_array_elements(
					case jsonb_typeof(n.value) when 'array' then n.value end)
					with ordinality e (value, n)) c (name, value)
		), found (path, message) as (
			select replace(n.path, mark, E'\\'), t.place || case
				when position(mark || 'u0000' in t.text) > 0 then E'contains \\u0000'
				else 'contains half of a surrogate pair' end
			from node n cross join lateral (values ('', case jsonb_typeof(n.value)
				when 'string' then n.value #>> '{}' end), ('has a name that ', n.name)) t (place, text)
			where position(mark in t.text) > 0)
		select jsonb_agg(outbox.issue(f.path, f.message) -> 0) from found f), outbox.issue('', 'cannot be read'));
end $$;

-- mark_escapes(document, mark): the document with the escapes taken out on which the operators
-- of json and the type jsonb fail: \u0000 becomes MARKu0000, and half of a surrogate pair, say
-- \ud800, MARKud800. To know escapes from the text behind an escaped backslash, each \\ becomes
-- \u005cMARK. (with the full stop). mark: text that nothing else contains.
create or replace function outbox.mark_escapes(document text, mark text)
	returns text language plpgsql immutable
as $$
declare
	high constant text := 'u[dD][89abAB][0-9a-fA-F]{2}';
	low constant text := 'u[dD][c-fC-F][0-9a-fA-F]{2}';
begin
	document := replace(document, E'\\\\', E'\\u005c' || mark || '.');
	return regexp_replace(document, format(E'\\\\(u0000|%s(?!\\\\%s))|(?<!\\\\%1$s)\\\\(%2$s)', high, low),
		mark || E'\\1\\2', 'g');
end $$;

-- unmark_escapes(fragment, mark): a fragment of JSON text as it was before mark_escapes.
create or replace function outbox.unmark_escapes(fragment text, mark text)
	returns text language sql immutable
	as $$ select replace(replace(fragment, E'\\u005c' || mark || '.', E'\\\\'), mark, E'\\') $$;

-- ---- the schema itself

-- schema_keywords(): what the value of each keyword has to be.
create or replace function outbox.schema_keywords() returns jsonb
	language sql immutable parallel safe
	as $$ select '{
	"type": "types", "enum": "values", "const": "value",
	"minimum": "number", "maximum": "number", "exclusiveMinimum": "number",
	"exclusiveMaximum": "number", "multipleOf": "positive number",
	"minLength": "count", "maxLength": "count", "pattern": "regular expression",
	"prefixItems": "schemas", "items": "schema", "minItems": "count", "maxItems": "count",
	"uniqueItems": "boolean", "contains": "schema",
	"required": "names", "properties": "named schemas", "patternProperties": "named schemas",
	"additionalProperties": "schema", "propertyNames": "schema", "minProperties": "count",
	"maxProperties": "count",
	"allOf": "schemas", "anyOf": "schemas", "oneOf": "schemas", "not": "schema",
	"if": "schema", "then": "schema", "else": "schema", "$ref": "reference",
	"$defs": "named schemas", "definitions": "named schemas",
	"format": "string", "title": "string", "description": "string", "default": "value",
	"examples": "values", "deprecated": "boolean", "readOnly": "boolean",
	"writeOnly": "boolean", "contentEncoding": "string", "contentMediaType": "string",
	"$schema": "string", "$id": "string", "$comment": "string"}'::jsonb $$;

create or replace function outbox.subschema_issues(root jsonb, schema jsonb, path text)
	returns jsonb language plpgsql stable
as $$
declare
	member record;
	part record;
	issues jsonb := '[]';
begin
	if jsonb_typeof(schema) = 'boolean' then
		return '[]';
	elsif jsonb_typeof(schema) <> 'object' then
		return outbox.issue(path, 'must be a schema: an object, true or false');
	end if;
	for member in
		select m.key, m.value, outbox.pointer(path, m.key) as path,
			outbox.schema_keywords() ->> m.key as shape
		from jsonb_each(schema) m where m.key not like 'x-%'
	loop
		exit when jsonb_array_length(issues) >= 20;
		if member.shape is null then
			issues := issues || outbox.issue(member.path, 'is not a supported keyword');
		elsif not outbox.has_shape(root, member.key, member.value, member.shape) then
			issues := issues || outbox.issue(member.path, 'must be ' || case member.shape
				when 'types' then 'a type or an array of types'
				when 'count' then 'a whole number of at least 0'
				when 'values' then 'an array'
				when 'names' then 'an array of different strings'
				when 'schemas' then 'an array of at least one schema'
				when 'named schemas' then 'an object of schemas'
				when 'reference' then 'a reference into this document, "#" or "#/..."'
				else 'a ' || member.shape end);
		end if;
		for part in select * from outbox.subschemas(member.value, member.shape) loop
			issues := issues || outbox.subschema_issues(root, part.schema,
				member.path || part.path);
			if member.key = 'patternProperties' and not outbox.is_pattern(part.name) then
				issues := issues || outbox.issue(member.path || part.path,
					'must be named by a regular expression');
			end if;
		end loop;
	end loop;
	return issues;
end $$;

-- subschemas(value, shape): the schemas in the value of a keyword of this shape.
create or replace function outbox.subschemas(value jsonb, shape text)
	returns table (name text, path text, schema jsonb) language sql immutable parallel safe
	as $$
	select '', '', value where shape = 'schema'
	union all
	select m.key, outbox.pointer('', m.key), m.value
	from jsonb_each(case when jsonb_typeof(value) = 'object' then value end) m
	where shape = 'named schemas'
	union all
	select '', '/' || e.n - 1, e.value
	from jsonb_array_elements(case when jsonb_typeof(value) = 'array' then value end)
		with ordinality e (value, n)
	where shape = 'schemas' $$;

-- has_shape(…): whether the value of a keyword is what it has to be, but for schemas in it.
create or replace function outbox.has_shape(root jsonb, keyword text, value jsonb, shape text)
	returns boolean language plpgsql stable
as $$
declare
	type constant text := jsonb_typeof(value);
	text constant text := value #>> '{}';
begin
	case shape
		when 'types' then
			return type in ('string', 'array') and value <> '[]'
				and (case type when 'string' then jsonb_build_array(value) else value end)
				<@ '["null", "boolean", "object", "array", "number", "string", "integer"]';
		when 'number', 'string', 'boolean' then return type = shape;
		when 'positive number' then return type = 'number' and text::numeric > 0;
		when 'count' then
			return type = 'number' and text::numeric >= 0 and text::numeric % 1 = 0;
		when 'values' then return type = 'array';
		when 'schemas' then return type = 'array' and value <> '[]';
		when 'named schemas' then return type = 'object';
		when 'names' then
			return type = 'array' and not exists (
				select from jsonb_array_elements(value) e
				where jsonb_typeof(e.value) <> 'string' group by e.value)
				and jsonb_array_length(value) = (
				select count(distinct e.value) from jsonb_array_elements(value) e);
		when 'regular expression' then return type = 'string' and outbox.is_pattern(text);
		when 'reference' then
			return type = 'string' and outbox.at_ref(root, text) is not null;
		else return true; -- schema, value
	end case;
end $$;

create or replace function outbox.is_pattern(pattern text)
	returns boolean language plpgsql immutable
as $$
begin
	perform '' ~ pattern;
	return true;
exception when invalid_regular_expression then
	return false;
end $$;

-- loop_issues(root): the references that lead back to themselves without going into the
-- value, so that checking would never end.
create or replace function outbox.loop_issues(root jsonb)
	returns jsonb language sql stable
	as $$
	with recursive step (first, ref) as (
		select r.ref, r.ref from outbox.refs_in(root, true) r (ref)
		union
		select s.first, r.ref
		from step s cross join lateral outbox.refs_in(outbox.at_ref(root, s.ref), false) r (ref))
	select coalesce(jsonb_agg(distinct outbox.issue('', format('the schema at "%s" refers to itself',
		s.first)) -> 0), '[]')
	from step s cross join lateral outbox.refs_in(outbox.at_ref(root, s.ref), false) r (ref)
	where r.ref = s.first $$;

-- refs_in(schema, deep): the references in a schema: all of them, or those that apply to the
-- same value as the schema itself.
create or replace function outbox.refs_in(schema jsonb, deep boolean)
	returns setof text language sql stable
	as $$
	with recursive part (schema) as (
		select refs_in.schema
		union all
		select s.schema
		from part p
		cross join lateral jsonb_each(case jsonb_typeof(p.schema) when 'object' then p.schema end) m
		cross join lateral outbox.subschemas(m.value, outbox.schema_keywords() ->> m.key) s
		where deep or m.key in ('allOf', 'anyOf', 'oneOf', 'not', 'if', 'then', 'else'))
	select p.schema ->> '$ref' from part p where jsonb_typeof(p.schema -> '$ref') = 'string' $$;
