-- payload_issues and schema_issues.
begin;
\ir helpers.psql
select * from no_plan();

-- What is wrong with a document by a schema: "path message; …", or null.
create function test.issues(schema text, document text) returns text language sql as $$
	insert into outbox.kind (name, payload_schema) values ('checked', schema::jsonb)
	on conflict (name) do update set payload_schema = excluded.payload_schema;
	select string_agg(concat_ws(' ', nullif(i ->> 'path', ''), i ->> 'message'), '; ' order by n)
	from json_array_elements(outbox.payload_issues('checked', document::json)) with ordinality i (i, n)
$$;

-- ---- each keyword: schema, document, issues (null: none)

select is(test.issues(c.schema, c.document), c.issues, format('%s: %s', c.schema, left(c.document, 60)))
from (values
	('true', '1', null),
	('false', '1', 'is not allowed'),
	('{}', '{"a":[null]}', null),
	-- type
	('{"type":"object"}', '{}', null),
	('{"type":"object"}', '[]', 'must be of type object, not array'),
	('{"type":"array"}', '[]', null),
	('{"type":"string"}', '1', 'must be of type string, not number'),
	('{"type":"boolean"}', 'false', null),
	('{"type":"boolean"}', '0', 'must be of type boolean, not number'),
	('{"type":"null"}', 'null', null),
	('{"type":"null"}', '0', 'must be of type null, not number'),
	('{"type":"number"}', '1.5', null),
	('{"type":"integer"}', '3', null),
	('{"type":"integer"}', '3.0', null),
	('{"type":"integer"}', '1e3', null),
	('{"type":"integer"}', '3.5', 'must be of type integer, not number'),
	('{"type":"integer"}', '"3"', 'must be of type integer, not string'),
	('{"type":["string","null"]}', 'null', null),
	('{"type":["string","null"]}', '1', 'must be of type string, null, not number'),
	('{"type":["integer","string"]}', '0.5', 'must be of type integer, string, not number'),
	-- enum, const
	('{"enum":["a",1,{"x":[1]}]}', '"a"', null),
	('{"enum":["a",1,{"x":[1]}]}', '1.0', null),
	('{"enum":["a",1,{"x":[1]}]}', '{"x":[1]}', null),
	('{"enum":["a",1,null]}', 'null', null),
	('{"enum":["a",1]}', '"b"', 'is not one of the values that are allowed'),
	('{"enum":[]}', '1', 'is not one of the values that are allowed'),
	('{"const":null}', 'null', null),
	('{"const":null}', 'false', 'is not the one value that is allowed'),
	('{"const":{"b":1,"a":2}}', '{"a":2,"b":1}', null),
	('{"const":0}', 'false', 'is not the one value that is allowed'),
	-- numbers
	('{"minimum":3}', '3', null),
	('{"minimum":3}', '2.99999999999999999999', 'must be at least 3'),
	('{"maximum":9007199254740993}', '9007199254740994', 'must be at most 9007199254740993'),
	('{"exclusiveMinimum":3}', '3', 'must be greater than 3'),
	('{"exclusiveMinimum":3}', '3.00000000000000000001', null),
	('{"exclusiveMaximum":3}', '3', 'must be less than 3'),
	('{"exclusiveMaximum":3}', '2', null),
	('{"multipleOf":0.01}', '19.99', null),
	('{"multipleOf":0.01}', '19.999', 'must be a multiple of 0.01'),
	('{"minimum":3,"maximum":1}', '2', 'must be at least 3; must be at most 1'),
	('{"minimum":3}', '"2"', null),
	-- strings
	('{"minLength":2}', '"é"', 'must have at least 2 characters'),
	('{"minLength":2,"maxLength":2}', '"é😀"', null),
	('{"maxLength":2.0}', '"abc"', 'must have at most 2.0 characters'),
	('{"pattern":"b"}', '"abc"', null),
	('{"pattern":"^b"}', '"abc"', 'must match the pattern ^b'),
	('{"pattern":"^\\d{3}$"}', '"123"', null),
	('{"pattern":"^b"}', '1', null),
	-- arrays
	('{"minItems":1}', '[]', 'must have at least 1 items'),
	('{"maxItems":1}', '[1,2]', 'must have at most 1 items'),
	('{"uniqueItems":true}', '[1,1.0]', 'must not have equal items'),
	('{"uniqueItems":true}', '[1,"1",[1],{"a":1}]', null),
	('{"uniqueItems":true}', '[{"a":1,"b":2},{"b":2,"a":1}]', 'must not have equal items'),
	('{"uniqueItems":false}', '[1,1]', null),
	('{"items":{"type":"string"}}', '["a",1,"b",null]', '/1 must be of type string, not number; /3 must be of type string, not null'),
	('{"items":false}', '[]', null),
	('{"prefixItems":[{"type":"string"},{"type":"number"}]}', '["a","b",3]', '/1 must be of type number, not string'),
	('{"prefixItems":[{"type":"string"}],"items":false}', '["a",1]', '/1 is not allowed'),
	('{"prefixItems":[true,true]}', '[1]', null),
	('{"contains":{"const":3}}', '[1,2,3]', null),
	('{"contains":{"const":3}}', '[1,2]', 'must contain a certain item and does not'),
	('{"contains":true}', '[]', 'must contain a certain item and does not'),
	-- objects
	('{"required":["a","b"]}', '{"b":null}', 'must have the property "a"'),
	('{"required":["a"]}', '[]', null),
	('{"properties":{"a":{"type":"string"}}}', '{"a":1,"b":2}', '/a must be of type string, not number'),
	('{"properties":{"a/b~c":false}}', '{"a/b~c":1}', '/a~1b~0c is not allowed'),
	('{"properties":{"":false}}', '{"":1}', '/ is not allowed'),
	('{"properties":{"a":true},"additionalProperties":false}', '{"a":1,"b":2}', '/b is not allowed'),
	('{"additionalProperties":{"type":"number"}}', '{"a":1,"b":"2"}', '/b must be of type number, not string'),
	('{"patternProperties":{"^x":{"type":"number"}},"additionalProperties":false}', '{"x1":1,"y":2}', '/y is not allowed'),
	('{"properties":{"x":{"minimum":2}},"patternProperties":{"x":{"maximum":0}}}', '{"x":1}', '/x must be at least 2; /x must be at most 0'),
	('{"propertyNames":{"maxLength":1}}', '{"a":1,"bb":2}', '/bb has a name that is not allowed'),
	('{"minProperties":1}', '{}', 'must have at least 1 properties'),
	('{"maxProperties":1}', '{"a":1,"b":1}', 'must have at most 1 properties'),
	-- a member that is given twice: the last counts
	('{"properties":{"a":{"type":"string"}}}', '{"a":1,"a":"x"}', null),
	-- combinations
	('{"allOf":[{"minimum":3},{"multipleOf":2}]}', '1', 'must be at least 3; must be a multiple of 2'),
	('{"anyOf":[{"type":"string"},{"minimum":3}]}', '4', null),
	('{"anyOf":[{"type":"string"},{"minimum":3}]}', '2', 'matches none of the alternatives'),
	('{"oneOf":[{"minimum":3},{"minimum":5}]}', '4', null),
	('{"oneOf":[{"minimum":3},{"minimum":5}]}', '2', 'matches none of the alternatives'),
	('{"oneOf":[{"minimum":3},{"minimum":5}]}', '6', 'matches more than one of the alternatives'),
	('{"not":{"type":"string"}}', '1', null),
	('{"not":{"type":"string"}}', '"a"', 'matches what is excluded'),
	('{"if":{"type":"string"},"then":{"minLength":2},"else":{"minimum":2}}', '"a"', 'must have at least 2 characters'),
	('{"if":{"type":"string"},"then":{"minLength":2},"else":{"minimum":2}}', '1', 'must be at least 2'),
	('{"if":{"type":"string"},"then":{"minLength":2}}', '1', null),
	('{"then":false}', '1', null),
	-- references
	('{"properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"number"}}}', '{"a":"x"}', '/a must be of type number, not string'),
	('{"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"multipleOf":2}}}', '1', 'must be at least 3; must be a multiple of 2'),
	('{"$ref":"#/$defs/a~1b~0c","$defs":{"a/b~c":false}}', '1', 'is not allowed'),
	('{"properties":{"next":{"$ref":"#"}},"additionalProperties":false}', '{"next":{"next":{"x":1}}}', '/next/next/x is not allowed'),
	('{"$ref":"#"}', '1', 'cannot be checked: the schema at "#" refers to itself'),
	-- annotations do nothing
	('{"format":"email","title":"t","default":3,"examples":[1],"x-note":1,"$comment":"c"}', '"no mail"', null)
) c (schema, document, issues);

-- ---- in general

select is(outbox.payload_issues('nobody', '1')::text, null, 'a kind that is not known has no schema');
insert into outbox.kind (name) values ('free');
select is(outbox.payload_issues('free', '{"a":"\u0000"}')::text, null, 'nor has this one: nothing is looked at');
select is(outbox.payload_issues('checked', '"a"')::text, null, 'nothing wrong is null');
select test.issues('{"items":{"type":"string"}}', '[]') as x \gset
select is(json_array_length(outbox.payload_issues('checked', to_json(array_fill(1, array[1000])))), 20, 'no more than 20 issues');
select test.issues('{"additionalProperties":{"type":"string"}}', '{}') as x \gset
select is(json_array_length(outbox.payload_issues('checked', (select json_object_agg(n, n) from generate_series(1, 1000) n))), 20,
	'of an object neither');
select ok(length(test.issues('{"properties":{"a":{"additionalProperties":false}}}',
	json_build_object('a', json_build_object(repeat('k', 100000), 1))::text)) < 600, 'a long name is cut');
select is(test.issues('{"items":{"$ref":"#"}}', repeat('[', 60) || repeat(']', 60)), null, 'a schema follows 60 levels down');
select is(test.issues('{"items":{"$ref":"#"}}', repeat('[', 500) || repeat(']', 500)), 'is nested too deeply to be checked', '500 are too many');
select is(test.issues('{"type":"array"}', repeat('[', 500) || repeat(']', 500)), null, 'unless the schema does not look');
select unalike(test.issues('{"const":1}', '"s3cret"'), '%s3cret%', 'issues do not quote values');

-- ---- ENQ-01: text that jsonb cannot hold, found by its JSON pointer

select is(test.issues('true', c.document), c.issues, c.document)
from (values
	('{"a":"x\u0000y"}', '/a contains \u0000'),
	('{"k\u0000":1}', '/k\u0000 has a name that contains \u0000'),
	('{"a":[{"b":"\u0000"}]}', '/a/0/b contains \u0000'),
	('{"a":"\ud800"}', '/a contains half of a surrogate pair'),
	('{"a":"\udc59"}', '/a contains half of a surrogate pair'),
	('{"a":"x\\u0000y"}', null),
	('{"a":"\ud83d\ude00"}', null),
	('{"a":"\uD83D\uDE00\uDE00"}', '/a contains half of a surrogate pair'),
	('{"a":"\\\u0000"}', '/a contains \u0000'),
	('{"a":"\\\\u0000"}', null),
	('{"a":"\"\u0000"}', '/a contains \u0000'),
	('"\u0000"', 'contains \u0000'),
	('["\u0000","b",["\ud800"]]', '/0 contains \u0000; /2/0 contains half of a surrogate pair'),
	('{"a/b~":{"c":"\u0000"}}', '/a~1b~0/c contains \u0000'),
	('{"a":1e400000}', 'cannot be read: value overflows numeric format')
) c (document, issues);
select is(json_array_length(outbox.payload_issues('checked', format('[%s1]', repeat('"\u0000",', 1000))::json)), 20,
	'no more than 20 of these either');

-- ---- schemas: what is malformed or not supported

create function test.schema_issues(schema text) returns text language sql as $$
	select string_agg(concat_ws(' ', nullif(i ->> 'path', ''), i ->> 'message'), '; ' order by n)
	from json_array_elements(outbox.schema_issues(schema::json)) with ordinality i (i, n)
$$;
select is(test.schema_issues(c.schema), c.issues, c.schema)
from (values
	('true', null),
	('{}', null),
	('{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","title":"t","description":"d","default":null,"examples":[1],"$comment":"c","format":"date","deprecated":true,"readOnly":true,"writeOnly":false,"contentEncoding":"base64","contentMediaType":"text/plain","x-any":{"minimum":"x"}}', null),
	('{"type":"integer","enum":[1],"const":1,"minimum":1,"maximum":1,"exclusiveMinimum":0,"exclusiveMaximum":2,"multipleOf":0.1}', null),
	('{"minLength":0,"maxLength":1.0,"pattern":"^a","minItems":0,"maxItems":1,"uniqueItems":true,"items":{},"prefixItems":[{}],"contains":true}', null),
	('{"required":[],"properties":{"type":{"type":"string"}},"patternProperties":{"^a":false},"additionalProperties":false,"propertyNames":{},"minProperties":0,"maxProperties":9}', null),
	('{"allOf":[true],"anyOf":[true],"oneOf":[true],"not":false,"if":{},"then":{},"else":{},"$ref":"#/$defs/a","$defs":{"a":{}},"definitions":{"b":{}}}', null),
	('1', 'must be a schema: an object, true or false'),
	('[]', 'must be a schema: an object, true or false'),
	('{"unevaluatedProperties":false}', '/unevaluatedProperties is not a supported keyword'),
	('{"properties":{"a/b":{"dependentRequired":{}}}}', '/properties/a~1b/dependentRequired is not a supported keyword'),
	('{"type":"text"}', '/type must be a type or an array of types'),
	('{"type":[]}', '/type must be a type or an array of types'),
	('{"type":["string","text"]}', '/type must be a type or an array of types'),
	('{"type":{"string":1}}', '/type must be a type or an array of types'),
	('{"type":[["string"]]}', '/type must be a type or an array of types'),
	('{"enum":1}', '/enum must be an array'),
	('{"minimum":"1"}', '/minimum must be a number'),
	('{"multipleOf":0}', '/multipleOf must be a positive number'),
	('{"minLength":-1}', '/minLength must be a whole number of at least 0'),
	('{"minLength":0.5}', '/minLength must be a whole number of at least 0'),
	('{"pattern":"("}', '/pattern must be a regular expression'),
	('{"pattern":1}', '/pattern must be a regular expression'),
	('{"uniqueItems":"yes"}', '/uniqueItems must be a boolean'),
	('{"title":1}', '/title must be a string'),
	('{"required":"a"}', '/required must be an array of different strings'),
	('{"required":["a",1]}', '/required must be an array of different strings'),
	('{"required":["a","a"]}', '/required must be an array of different strings'),
	('{"items":[{}]}', '/items must be a schema: an object, true or false'),
	('{"prefixItems":[]}', '/prefixItems must be an array of at least one schema'),
	('{"anyOf":{}}', '/anyOf must be an array of at least one schema'),
	('{"allOf":[{},{"type":"x"},3]}', '/allOf/1/type must be a type or an array of types; /allOf/2 must be a schema: an object, true or false'),
	('{"properties":[]}', '/properties must be an object of schemas'),
	('{"properties":{"a":1}}', '/properties/a must be a schema: an object, true or false'),
	('{"patternProperties":{"(":{}}}', '/patternProperties/( must be named by a regular expression'),
	('{"$ref":"#/$defs/missing"}', '/$ref must be a reference into this document, "#" or "#/..."'),
	('{"$ref":"other.json"}', '/$ref must be a reference into this document, "#" or "#/..."'),
	('{"$ref":1}', '/$ref must be a reference into this document, "#" or "#/..."'),
	('{"const":"\u0000"}', '/const contains \u0000'),
	-- a schema that would have to be checked for ever
	('{"$ref":"#"}', 'the schema at "#" refers to itself'),
	('{"$defs":{"a":{"anyOf":[true,{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}},"items":{"$ref":"#/$defs/a"}}',
		'the schema at "#/$defs/a" refers to itself; the schema at "#/$defs/b" refers to itself'),
	('{"items":{"$ref":"#"}}', null),
	('{"$ref":"#/$defs/list","$defs":{"list":{"properties":{"next":{"$ref":"#/$defs/list"}}}}}', null)
) c (schema, issues);
select is(json_array_length(outbox.schema_issues((select json_object_agg('k' || n, n) from generate_series(1, 100) n))), 20,
	'no more than 20 issues of a schema');

-- ---- strange schemas do not break an enqueue: they cannot be announced, but may be in the table

select lives_ok(format('select test.issues(%L, %L)', c.schema, c.document), 'no error: ' || c.schema)
from (values ('1', '1'), ('"x"', '{}'), ('{"$ref":"#/nowhere"}', '1'), ('{"$ref":"x"}', '1'),
	('{"unknown":1}', '1'), ('{"properties":{"a":null}}', '{"a":1}')) c (schema, document);
select alike(test.issues(c.schema, c.document), 'cannot be checked: %', 'an issue: ' || c.schema)
from (values ('{"pattern":"("}', '"a"'), ('{"minimum":"x"}', '1'), ('{"multipleOf":0}', '1'), ('{"prefixItems":1}', '[]'),
	('{"required":"a"}', '{}')) c (schema, document);

select * from finish();
rollback;
